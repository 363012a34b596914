"""Serves MLflow's own tracking server (its Flask application, which knows all that clients ask) over a SQLite file.

Usage: serve_mlflow.py DATABASE PORT; port 0: any free one. Prints the port.
"""

from __future__ import annotations

import os
import sys

os.environ |= {"_MLFLOW_SERVER_FILE_STORE": f"sqlite:///{sys.argv[1]}", "_MLFLOW_SERVER_ARTIFACT_ROOT": "/nowhere"}

from mlflow.server import app
from werkzeug.serving import make_server

server = make_server("127.0.0.1", int(sys.argv[2]), app, threaded=True)
sys.stdout.write(f"{server.port}\n")
sys.stdout.flush()
server.serve_forever()
