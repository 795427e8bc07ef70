"""Bad devices, and the programs beside the trainings."""

from __future__ import annotations

from typing import Any

from tables.cells import count, percent, result, table


def publishing() -> str:
    """What it costs to tell others."""
    found = result("exporter")
    event, scrape, flood = found["event"], found["scrape"], found["flood"]
    return table(
        ("part", "measured"),
        [
            ("an event into the log", f"{event['microseconds of a event']['median']:.0f} µs"),
            ("a first-level event, synced to disk", f"{event['microseconds of a durable event']['median']:.0f} µs"),
            ("for comparison: a plain append and fsync", f"{event['microseconds of a plain fsync']['median']:.0f} µs"),
            (
                f"a scrape of {count(scrape['series']['after 100 events'])} series, after 100 events",
                f"{scrape['processor milliseconds, after 100 events']['median']:.0f} ms of processor",
            ),
            (
                "the same after a million events",
                f"{scrape['processor milliseconds, after 1000000 events']['median']:.0f} ms of processor",
            ),
            ("series of a node with 8 ranks, by default", count(scrape["series"]["by default"])),
            (
                f"events counted by the agent, of {count(flood['events written'])} written "
                f"at {count(flood['events a second'])} a second",
                count(flood["events counted"]),
            ),
            (
                "memory of the agent, after 100,000 and after a million events",
                f"{found['memory']['megabytes at a tenth']:.0f} MB, {found['memory']['megabytes at the end']:.0f} MB",
            ),
        ],
    )


def fleet() -> str:
    """What two half-lives make of healthy and of bad devices."""
    found = result("fleet")

    def by(name: str, rate: str) -> dict[float, dict[str, dict[str, Any]]]:
        rows: dict[float, dict[str, dict[str, Any]]] = {}
        for row in found[name]:
            rows.setdefault(row[rate], {})[row["policy"]] = row
        return rows

    def accused(row: dict[str, Any]) -> str:
        low, high = row["interval"]
        return f"{row['in_10000_device_days']:.2f} ({low:.2f} to {high:.2f}) in 10,000 device-days"

    def caught(row: dict[str, Any]) -> str:
        if not row["taken_out_within_a_year"]:
            return f"0 of {row['devices']}"
        days, alarms = row["median_days"], row["median_alarms"]
        return f"{row['taken_out_within_a_year']} of {row['devices']}, after {days:.1f} days and {alarms:g} alarms"

    rows = [
        (f"healthy, {rate:g} alarms a year", *(accused(row[rule]) for rule in ("suspicion", "strikes")))
        for rate, row in by("healthy", "alarms_a_year").items()
    ]
    rows += [
        (f"bad, {rate:g} alarms a month", *(caught(row[rule]) for rule in ("suspicion", "strikes")))
        for rate, row in by("bad", "alarms_a_month").items()
    ]
    return table(("device", "`--half-life 30`", "`--half-life 0.01`"), rows)


def decided() -> tuple[float, float, int]:
    """The least and the greatest time from an alarm to the decision, in seconds, and of how many jobs."""
    times = [each["decision_s"] for each in result("recovery")["recovery"]["from_the_last_checkpoint"]["each"]]
    return min(times), max(times), len(times)


def acting() -> str:
    """How fast and how rightly it is acted."""
    found, scale = result("recovery"), result("scale")
    jobs = list(found["recovery"].values())
    total = sum(each["jobs"] for each in jobs)
    blamed, handler, pulled = found["attribution"], scale["handler"], scale["pulling"]
    return table(
        ("part", "measured"),
        [
            (
                "from the alarm to the decision to isolate, replay included",
                "{:.2f} to {:.2f} s in {} jobs".format(*decided()),
            ),
            ("jobs in which the right device was left out", f"{sum(each['right_device'] for each in jobs)} of {total}"),
            (
                "jobs that ended with the weights of an undisturbed training, bit for bit",
                f"{sum(each['weights_as_undisturbed'] for each in jobs)} of {total}",
            ),
            (
                "jobs that lost no more than the steps since the last good checkpoint",
                f"{sum(each['no_more_lost_than_since_the_checkpoint'] for each in jobs)} of {total}",
            ),
            (
                f"enormous gradients at checked tensors, over {blamed['ranks']} ranks: the right rank named",
                f"{blamed['right']} of {blamed['faults']}",
            ),
            ("ranks accused in the steps between", f"{blamed['accused_between']} in {blamed['steps_between']} steps"),
            (
                f"events the handler takes in, {count(handler['devices'])} devices, of "
                f"{count(handler['asked_rate'])} a second offered",
                f"{count(handler['rate'])} a second",
            ),
            (
                f"{count(pulled['events'])} events pulled from {count(pulled['agents'])} agents, of "
                f"{count(pulled['asked_rate'])} a second offered",
                f"{count(pulled['rate'])} a second, memory {pulled['memory_growth_in_second_half_mib']:+.1f} MiB in "
                "the second half",
            ),
            (
                "from the time of a pulled event until it is taken in",
                f"{pulled['median_seconds']:.2f} s, 99 % within {pulled['p99_seconds']:.2f} s, where 1 s is aimed at; "
                f"{percent(pulled['processor_share'])} of a core, beside others of which "
                f"{pulled['load_before']:.0f} ran or waited",
            ),
            (
                "memory of the handler, growth in the second half of it",
                f"{handler['memory_growth_in_second_half_mib']:.1f} MiB",
            ),
        ],
    )
