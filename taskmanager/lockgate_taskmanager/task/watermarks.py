"""The combined watermark of several input channels: the minimum over those that are neither idle nor ended. Pure."""

from __future__ import annotations

from lockgate_proto.messages import Watermark

MIN_WATERMARK = -(1 << 63)  # no watermark yet
MAX_WATERMARK = (1 << 63) - 1  # no more records follow


def held_back(watermark: Watermark, by_ms: int) -> Watermark:
    """The watermark for records that may be up to `by_ms` older; the end of the input is unchanged."""
    time = watermark.event_time_ms
    if time == MAX_WATERMARK:
        return watermark
    return Watermark(max(time - by_ms, MIN_WATERMARK), watermark.idle)


class ChannelWatermarks:
    """Combines the watermarks of input channels, numbered from 0. The result never decreases.

    When every channel is idle or has ended, none holds event time back: the result is the maximum of the idle channels,
    whichever became idle last. When all have ended it is MAX_WATERMARK.
    A channel that was drained holds event time back as before until all have ended: the input left in its sources is
    read when the job is started again, and would be late then.
    """

    def __init__(self, channel_count: int, silent: frozenset[int] = frozenset()) -> None:
        """silent: channels whose records put nothing out, so that their time does not matter. Not all of them."""
        self._times = [MIN_WATERMARK] * channel_count
        self._silent = silent
        self._idle: set[int] = set()
        self._ended: set[int] = set(silent)
        self._drained: set[int] = set()  # a subset of _ended
        self._last = Watermark(MIN_WATERMARK)

    def arrived(self, channel: int, watermark: Watermark) -> Watermark | None:
        """A watermark on a channel. Returns the new combination, None when it has not changed."""
        self._times[channel] = max(self._times[channel], watermark.event_time_ms)
        if watermark.idle:
            self._idle.add(channel)
        else:
            self._idle.discard(channel)
        return self._news()

    def ended(self, channel: int, drained: bool = False) -> Watermark | None:
        """No more records follow on a channel. drained: its sources may have more. Returns as `arrived`."""
        self._ended.add(channel)
        if drained and channel not in self._silent:
            self._drained.add(channel)
        return self._news()

    def _news(self) -> Watermark | None:
        channels = set(range(len(self._times))) - self._ended
        if channels:
            channels |= self._drained
        active = channels - self._idle
        if active:
            time = min(self._times[channel] for channel in active)
        else:
            time = max((self._times[channel] for channel in channels), default=MAX_WATERMARK)
        combined = Watermark(max(time, self._last.event_time_ms), idle=bool(channels) and not active)
        if combined == self._last:
            return None
        self._last = combined
        return combined
