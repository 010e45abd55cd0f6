"""A cluster of which every process shows a certificate: the leader dies, and certificates are renewed under a job."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from lockgate_common.security import TlsFiles

from lockgate.client import Client, find_cluster
from tests.certificates import make_certificates
from tests.chaos.testing_cluster import TestingCluster
from tests.drained import PATIENCE_S

pytestmark = [pytest.mark.chaos, pytest.mark.first, pytest.mark.rotating, pytest.mark.slow]


def test_a_job_continues_when_the_leader_dies_and_certificates_are_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CERTIFICATE", "KEY", "AUTHORITY", "MUTUAL"):
        monkeypatch.delenv(f"LOCKGATE_TLS_{name}", raising=False)
    tls = replace(make_certificates(tmp_path / "tls"), mutual=True)
    with TestingCluster(tmp_path, tls=tls) as testing, testing.ledger() as job:
        directory = testing.cluster.directory
        assert json.loads((directory / "cluster.json").read_text())["tls"]["mutual"] is True
        target = find_cluster(str(directory))
        assert target.credentials.tls == tls
        with Client.connect(target) as client:
            assert len(client.cluster().task_managers) == 2
        job.wait_checkpoints(1)
        number = testing.kill_leader()
        job.wait_attempt(2)
        _renew(tls, tmp_path)
        testing.cluster.wait_ready("coordinator", number, PATIENCE_S)
        testing.wait_complete()
        testing.kill_leader()
        job.wait_attempt(3)
        job.check_exact()


def _renew(tls: TlsFiles, folder: Path) -> None:
    """Another certificate of the same authority, in place."""
    new = make_certificates(folder / "tls", "renewed")
    shutil.copy(new.key, tls.key)
    shutil.copy(new.certificate, tls.certificate)
