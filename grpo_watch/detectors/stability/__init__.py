"""Training that leaves its usual range: KL, entropy, gradients, clipping, lengths, NaN."""
