"""Notices through real sockets."""

import pytest

from runtime.notices import report, send_notice
from tests.runtime.notice_servers import web_hook


def test_a_notice_goes_to_the_web_hook_without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    assert send_notice("nobody is configured") == 0
    with web_hook() as (hook, texts):
        monkeypatch.setenv("BIFOCAL_NOTICE_URL", hook)
        assert send_notice("version 2 is the champion\nbecause s3://key:secret99@host says so") == 1
    assert texts == ["version 2 is the champion\nbecause s3://***@host says so"]


def test_a_web_hook_that_fails_is_named_without_its_address(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with web_hook(status=500) as (hook, _):
        monkeypatch.setenv("BIFOCAL_NOTICE_URL", hook)
        with pytest.raises(OSError, match="BIFOCAL_NOTICE_URL: status 500"):
            send_notice("refused")
        report("refused again", "red")
        assert "a notice was not sent" in capsys.readouterr().err
    monkeypatch.setenv("BIFOCAL_NOTICE_URL", "hooks.example.org")
    with pytest.raises(OSError, match="not an address that starts with http"):
        send_notice("refused")
