"""Why ZooKeeper does not answer, where TLS is the reason: found from outside, by asking its servers once more."""

from __future__ import annotations

import socket
import ssl

from kazoo.hosts import collect_hosts
from lockgate_common.tls import SecurityError, TlsFiles, client_context

_LIMIT_S = 1.0
_OTHER_HOST = (62, 64)  # OpenSSL's codes for a name and for an address


def trouble(hosts: str, tls: TlsFiles | None) -> str:
    """One sentence for people about the first server with a reason; "" when there is none to be seen."""
    for host, port in collect_hosts(hosts)[0]:
        try:
            with socket.create_connection((host, port), _LIMIT_S) as connection:
                why = _without_tls(connection) if tls is None else _with_tls(connection, host, tls)
        except OSError:
            continue  # refused, unknown or silent
        except SecurityError as error:
            return str(error)
        if why:
            return f"ZooKeeper at {host}:{port} {why}"
    return ""


def no_answer(hosts: str, tls: TlsFiles | None) -> str:
    """`trouble`, or what else may be the reason."""
    plain = f"ZooKeeper does not answer at {hosts}; start `lockgate zookeeper` or check the address"
    return trouble(hosts, tls) or plain


def _without_tls(connection: socket.socket) -> str:
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # nothing is said to it, so it may be anyone
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    try:
        anyone.wrap_socket(connection).close()
    except ssl.SSLError as error:
        if not _is_alert(error):
            return ""
    return "speaks TLS only; set zookeeper.tls and its files"


def _with_tls(connection: socket.socket, host: str, tls: TlsFiles) -> str:
    try:
        with client_context(tls).wrap_socket(connection, server_hostname=host) as secured:
            return _after_handshake(secured, tls)
    except ssl.SSLCertVerificationError as error:
        reason = error.verify_message.rstrip(".")
        if error.verify_code in _OTHER_HOST:
            return f"has a certificate of another host ({reason}); it has to name every host in zookeeper.hosts"
        return f"has a certificate that {tls.authority} has not signed ({reason}); check zookeeper.authority"
    except ssl.SSLError as error:
        if _is_alert(error):
            return _refused(tls, error)
    except ConnectionResetError:
        pass
    return "does not speak TLS; check the port, or unset zookeeper.tls"


def _after_handshake(secured: ssl.SSLSocket, tls: TlsFiles) -> str:
    """With TLS 1.3 a server judges the client's certificate after the client's handshake is over."""
    try:
        secured.sendall(b"srvr")
        return "" if secured.recv(1) else _refused(tls)
    except ssl.SSLError as error:
        return _refused(tls, error) if _is_alert(error) else ""
    except ConnectionResetError:
        return _refused(tls)


def _refused(tls: TlsFiles, error: ssl.SSLError | None = None) -> str:
    if not tls.certificate:
        return "requires a certificate; set zookeeper.certificate and zookeeper.key"
    reason = (error.reason or "").partition("ALERT_")[2].replace("_", " ").lower() if error else ""
    return (
        f"does not accept the certificate {tls.certificate}{f' ({reason})' if reason else ''}; it has to be of an "
        "authority that ZooKeeper trusts"
    )


def _is_alert(error: ssl.SSLError) -> bool:
    return "ALERT" in (error.reason or "")
