from __future__ import annotations

import http.server
import threading

from urllib3 import PoolManager

from flowjoin.api import Duration
from flowjoin_clickhouse import ClickHouseConfig, flowjoin_exporter_types
from flowjoin_clickhouse._sockets import InterruptiblePool


def test_its_patience_is_longer_than_a_request() -> None:
    config = ClickHouseConfig(database_url="http://192.0.2.1:8123", timeout=Duration(3600))
    assert flowjoin_exporter_types()[0].patience(config) >= 3600 + float(config.connect_timeout)


def test_each_answer_is_progress() -> None:
    class Answering(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("X-ClickHouse-Timezone", "UTC")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            pass

    steps: list[None] = []
    with http.server.HTTPServer(("127.0.0.1", 0), Answering) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        pool = InterruptiblePool(PoolManager(), lambda: steps.append(None))
        try:
            for _ in range(3):
                pool.manager.request("GET", f"http://127.0.0.1:{server.server_port}/")
        finally:
            pool.close()
            server.shutdown()
            serving.join()
    assert len(steps) == 3
