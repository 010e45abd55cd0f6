"""A leader believes every token that a peer names: it goes, and the next grant is above that token."""

from __future__ import annotations

import dataclasses

from lockgate_ha import election_messages as m
from lockgate_ha.election import LeaderElection

_claim_in_turn = LeaderElection._claim_in_turn
_named: dict[int, int] = {}  # by machine


def _token_seen(self: LeaderElection, event: m.TokenSeen, now_ms: int) -> None:
    _named[id(self)] = max(_named.get(id(self), 0), event.token)
    if self.grant is not None and event.token > self.grant.token:
        self._give_up(event.reason, self.grant.token, now_ms)


def _claim_above(self: LeaderElection, why: str, view: m.View, now_ms: int) -> None:
    _claim_in_turn(self, why, view, now_ms)
    self._effects[:] = [
        dataclasses.replace(effect, token=max(effect.token, _named.get(id(self), 0) + 1))
        if isinstance(effect, m.Claim)
        else effect
        for effect in self._effects
    ]


assert hasattr(LeaderElection, "_token_seen")
LeaderElection._token_seen = _token_seen  # type: ignore[method-assign]
LeaderElection._claim_in_turn = _claim_above  # type: ignore[method-assign]
