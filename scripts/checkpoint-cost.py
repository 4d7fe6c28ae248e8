#!/usr/bin/env python3
"""Simulates what uniform overwrites cost a database with journal and flash: bytes to the device for each byte of the journal.

A segment that was emptied is free only after the next checkpoint. So the number of segments that collection prepares for it (`ahead`) decides how
often checkpoints are written and how full the other segments are. All sizes are shares of memory-limit. Values have one size and do not compress.
The node's rules: crates/store/src/log/segment/space.rs, store/lane/clean.rs and base/sizing.rs.
"""

import argparse
import random

RESERVE, FULLEST, FILL = 3, 0.92, 0.8
INDEX_BYTES_PER_VALUE_BYTE = 16 / 535
# Bytes of the journal while one byte of a checkpoint is written.
JOURNAL_DURING_CHECKPOINT = 0.2


class Database:
    def __init__(self, fill, log, ram_values, journal, segments, ahead_share, units):
        self.random = random.Random(1)
        self.ahead_share, self.units = ahead_share, units
        self.size = int(units * log / segments)
        self.at = [-1] * int(units * fill)
        self.ram, self.in_ram, self.ram_max = [], set(), int(units * ram_values)
        self.records = [set() for _ in range(segments)]
        self.free, self.held, self.sealed = list(range(segments)), [], set()
        self.open, self.used = [None, None], [0, 0]
        self.journal_max = journal * units
        self.journal_from, self.cuts, self.cut_at, self.ends_at = 0, 0, 0, None
        self.ahead = 0
        self.counts = {"journal": 0, "left RAM": 0, "collected": 0, "copies": 0, "dumps": 0, "indexes": 0, "checkpoints": 0}

    def live(self):
        return sum(map(len, self.records))

    def usable(self):
        return len(self.records) - RESERVE - 1

    def plan_ahead(self):
        spare = (FULLEST * self.usable() - self.live() / self.size) / 2
        self.ahead = int(max(0, min(spare, len(self.records) * self.ahead_share)))

    def low(self):
        return RESERVE + min(8, max(2, len(self.records) // 32))

    def prepared(self):
        return len(self.free) + len(self.held)

    def kill(self, value):
        if self.at[value] >= 0:
            self.records[self.at[value]].discard(value)
            self.at[value] = -1

    def put(self, value, relocated):
        if self.open[relocated] is None or self.used[relocated] == self.size:
            if self.open[relocated] is not None:
                self.sealed.add(self.open[relocated])
                self.open[relocated] = None
            if not self.free or not relocated and len(self.free) <= RESERVE:
                return False
            self.open[relocated], self.used[relocated] = self.free.pop(0), 0
        self.used[relocated] += 1
        self.at[value] = self.open[relocated]
        self.records[self.at[value]].add(value)
        return True

    def hold(self, segment):
        self.sealed.discard(segment)
        self.held.append((segment, self.cuts))

    def hold_dead(self):
        for segment in [segment for segment in self.sealed if not self.records[segment]]:
            self.hold(segment)

    def collect(self):
        victim = min(self.sealed, key=lambda segment: len(self.records[segment]), default=None)
        if victim is None or len(self.free) < 2 or len(self.records[victim]) > FULLEST * self.size:
            return False
        for value in list(self.records[victim]):
            self.kill(value)
            assert self.put(value, True)
            self.counts["collected"] += 1
        self.hold(victim)
        return True

    def begin_checkpoint(self):
        room = self.usable() * self.size * FILL - self.live() - len(self.ram)
        self.plan_ahead()
        dirty = 0
        for value in self.ram:
            if self.at[value] < 0:
                if room > 0 and len(self.free) > self.low() and self.put(value, False):
                    room -= 1
                    self.counts["copies"] += 1
                else:
                    dirty += 1
        index = (len(self.at) - dirty) * INDEX_BYTES_PER_VALUE_BYTE
        self.counts["dumps"] += dirty
        self.counts["indexes"] += index
        self.counts["checkpoints"] += 1
        self.cuts += 1
        self.cut_at = self.counts["journal"]
        self.ends_at = self.cut_at + (dirty + index) * JOURNAL_DURING_CHECKPOINT

    def end_checkpoint(self):
        self.free += [segment for segment, cuts in self.held if cuts < self.cuts]
        self.held = [(segment, cuts) for segment, cuts in self.held if cuts >= self.cuts]
        self.journal_from, self.ends_at = self.cut_at, None

    def upkeep(self):
        if self.counts["journal"] % 64 == 0:
            self.hold_dead()
        for _ in range(3):
            if self.prepared() > max(self.low(), RESERVE + self.ahead) or not self.collect():
                break
        if self.ends_at is not None and self.counts["journal"] >= self.ends_at:
            self.end_checkpoint()
        few = len(self.held) + RESERVE >= len(self.free)
        is_long = self.counts["journal"] - self.journal_from > self.journal_max / 2
        if self.ends_at is None and (few and self.held or is_long):
            self.begin_checkpoint()

    def leave_ram(self, value):
        waits = 0
        while not self.put(value, False):
            self.hold_dead()
            self.plan_ahead()
            while self.collect():
                if self.prepared() > RESERVE + self.ahead:
                    break
            if self.ends_at is None:
                self.begin_checkpoint()
            self.end_checkpoint()
            waits += 1
            assert waits < 1000, "no progress"
        self.counts["left RAM"] += 1

    def set(self, value):
        self.counts["journal"] += 1
        self.kill(value)
        if value not in self.in_ram:
            self.in_ram.add(value)
            if len(self.ram) < self.ram_max:
                self.ram.append(value)
            else:
                place = self.random.randrange(len(self.ram))
                left, self.ram[place] = self.ram[place], value
                self.in_ram.discard(left)
                if self.at[left] < 0:
                    self.leave_ram(left)
        self.upkeep()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fill", type=float, nargs="+", default=[0.56, 0.763, 0.8, 0.85], help="all values")
    parser.add_argument("--log", type=float, default=0.88)
    parser.add_argument("--ram-values", type=float, default=0.24, help="values in RAM")
    parser.add_argument("--journal", type=float, default=0.12)
    parser.add_argument("--segments", type=int, default=300)
    parser.add_argument("--ahead", type=float, nargs="+", default=[0, 1 / 32, 1 / 16, 1 / 8, 1 / 4], help="shares of the log")
    parser.add_argument("--units", type=int, default=50_000, help="values that memory-limit has room for")
    given = parser.parse_args()
    for fill in given.fill:
        for ahead in given.ahead:
            database = Database(fill, given.log, given.ram_values, given.journal, given.segments, ahead, given.units)
            for value in range(len(database.at)):
                database.set(value)
            # A value is overwritten three times on average; the last time counts.
            for _ in range(2 * len(database.at)):
                database.set(database.random.randrange(len(database.at)))
            before = dict(database.counts)
            for _ in range(len(database.at)):
                database.set(database.random.randrange(len(database.at)))
            counts = {name: database.counts[name] - before[name] for name in before}
            checkpoints = counts.pop("checkpoints")
            parts = ", ".join(f"{name} {count / counts['journal']:.2f}" for name, count in counts.items())
            total = sum(counts.values()) / counts["journal"]
            print(f"fill {fill}, ahead {ahead:.3f}: {total:.1f} = {parts}; {checkpoints} checkpoints", flush=True)


main()
