"""Notices through real sockets."""

from email import message_from_string

import pytest

from runtime.notices import report, send_notice
from tests.runtime.notice_servers import mail_server, web_hook


def test_a_notice_goes_to_the_web_hook_and_to_all_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert send_notice("nobody is configured") == 0
    with web_hook() as (hook, texts), mail_server() as (server, mails):
        monkeypatch.setenv("BIFOCAL_NOTICE_URL", hook)
        monkeypatch.setenv("BIFOCAL_NOTICE_EMAIL", "ops@example.org,ml@example.org")
        monkeypatch.setenv("BIFOCAL_NOTICE_FROM", "bifocal@example.org")
        monkeypatch.setenv("BIFOCAL_NOTICE_SMTP_URL", server)
        assert send_notice("version 2 is the champion\nbecause s3://key:secret99@host says so") == 2
    (text,), (mail,) = texts, (message_from_string(mails[0]),)
    assert text == "version 2 is the champion\nbecause s3://***@host says so"
    assert (mail["Subject"], mail["From"]) == ("version 2 is the champion", "bifocal@example.org")
    assert mail["To"] == "ops@example.org,ml@example.org"
    assert mail.get_payload().splitlines() == text.splitlines()


def test_a_place_that_fails_is_named_without_its_address_and_the_other_gets_the_notice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with web_hook(status=500) as (hook, _), mail_server() as (server, mails):
        monkeypatch.setenv("BIFOCAL_NOTICE_URL", hook)
        monkeypatch.setenv("BIFOCAL_NOTICE_EMAIL", "ops@example.org")
        monkeypatch.setenv("BIFOCAL_NOTICE_SMTP_URL", server)
        with pytest.raises(OSError, match="BIFOCAL_NOTICE_URL: HTTP Error 500"):
            send_notice("refused")
        report("refused again", "red")
        assert "a notice was not sent" in capsys.readouterr().err
        assert len(mails) == 2
        monkeypatch.setenv("BIFOCAL_NOTICE_SMTP_URL", "mail.example.org:25")
        monkeypatch.delenv("BIFOCAL_NOTICE_URL")
        with pytest.raises(OSError, match="is not smtp://HOST:PORT"):
            send_notice("refused")


def test_a_password_is_sent_only_after_tls_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    with mail_server() as (server, mails):
        monkeypatch.setenv("BIFOCAL_NOTICE_EMAIL", "ops@example.org")
        monkeypatch.setenv("BIFOCAL_NOTICE_SMTP_URL", server.replace("//", "//user:secret99@"))
        with pytest.raises(OSError, match="STARTTLS") as caught:
            send_notice("refused")
        assert "secret99" not in str(caught.value)
        assert mails == []
