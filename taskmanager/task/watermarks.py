"""How far event time has come behind several input channels: the least of them, idle and ended ones left out. Pure."""

from __future__ import annotations

from lockgate_proto.messages import Watermark

MIN_WATERMARK = -(1 << 63)  # nothing is known yet
MAX_WATERMARK = (1 << 63) - 1  # nothing follows


def held_back(watermark: Watermark, by_ms: int) -> Watermark:
    """What a watermark says of records that may be so much older; the end of the input stays the end."""
    time = watermark.event_time_ms
    if time == MAX_WATERMARK:
        return watermark
    return Watermark(max(time - by_ms, MIN_WATERMARK), watermark.idle)


class ChannelWatermarks:
    """Combines the watermarks of input channels, numbered from 0. The result never falls.

    Where every channel is idle or has ended, nobody holds event time back: it is as far as the furthest of the idle
    ones, whichever fell idle last. Where all have ended it is MAX_WATERMARK.

    A channel that was drained holds event time back as before until all have ended: what its sources have left is read
    when the job is started again, and would be late then.
    """

    def __init__(self, channel_count: int) -> None:
        self._times = [MIN_WATERMARK] * channel_count
        self._idle: set[int] = set()
        self._ended: set[int] = set()
        self._drained: set[int] = set()  # of those
        self._told = Watermark(MIN_WATERMARK)

    def arrived(self, channel: int, watermark: Watermark) -> Watermark | None:
        """A watermark on a channel. Returns the new combination, None when it is the same as before."""
        self._times[channel] = max(self._times[channel], watermark.event_time_ms)
        if watermark.idle:
            self._idle.add(channel)
        else:
            self._idle.discard(channel)
        return self._news()

    def ended(self, channel: int, drained: bool = False) -> Watermark | None:
        """No record follows on a channel. drained: its sources may have more. As `arrived`."""
        self._ended.add(channel)
        if drained:
            self._drained.add(channel)
        return self._news()

    def _news(self) -> Watermark | None:
        channels = set(range(len(self._times))) - self._ended
        if channels:
            channels |= self._drained
        active = channels - self._idle
        if active:
            time = min(self._times[one] for one in active)
        else:
            time = max((self._times[one] for one in channels), default=MAX_WATERMARK)
        told = Watermark(max(time, self._told.event_time_ms), idle=bool(channels) and not active)
        if told == self._told:
            return None
        self._told = told
        return told
