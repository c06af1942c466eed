"""Run an S3 server (moto) in the test's process: a real HTTP server, which can go away and come back with its objects."""

import logging
import os
import threading
import time

import pytest
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

SECRET = "this-is-the-secret-key"
KEYS = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1"}


class ObjectStore:
    """An S3 server with one bucket, `bucket`, that takes some `seconds` for each answer."""

    def __init__(self):
        self.seconds = 0.0
        self._app, self._port = DomainDispatcherApplication(create_backend_app), 0
        self.start()

    def _answer(self, environ, start_response):
        time.sleep(self.seconds)
        return self._app(environ, start_response)

    def start(self) -> None:
        """Answer requests, at the same port as before."""
        self._server = make_server("127.0.0.1", self._port, self._answer, threaded=True)
        self._port = self._server.server_port
        self.url = f"http://127.0.0.1:{self._port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Refuse connections."""
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def object_store():
    """A store, whose keys are in the environment."""
    import s3fs

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for each request
    with pytest.MonkeyPatch.context() as patch:
        store = ObjectStore()
        for name, value in (KEYS | {"AWS_ENDPOINT_URL": store.url}).items():
            patch.setenv(name, value)
        for name in [name for name in os.environ if name.endswith("_proxy")]:
            patch.delenv(name)
        store.files = s3fs.S3FileSystem(use_listings_cache=False, skip_instance_cache=True)
        store.files.makedirs("bucket", exist_ok=True)  # of another module: the objects stay
        yield store
        store.stop()
