"""Console output of a training job."""
