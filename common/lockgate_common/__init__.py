"""Parts that every server process needs, whatever its role: addresses, security, storage, fault points."""
