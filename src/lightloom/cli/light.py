"""``lightloom light``: what physics allows a link, and what a test has really shown."""

from __future__ import annotations

from typing import Any

import click

from .options import FINITE, echo_json, json_option, say, seed_option


@click.group()
def light() -> None:
    """Loss budget, lock loop, grid, reconfiguration, and how long a proof takes."""


@light.command()
@click.option("--link", "name", default="spine", show_default=True, help="spine, board, module")
@click.option("--coupling", type=FINITE, default=None, help="power ratio of a facet now")
@click.option("--kelvin", type=FINITE, default=0.0, help="detuning in degrees of an unlocked ring")
@click.option("--vibration", type=FINITE, default=0.0, help="g")
@click.option("--vibration-hz", type=FINITE, default=100.0, show_default=True, help="frequency")
@click.option("--loss", type=FINITE, default=0.0, help="extra loss, dB")
@json_option
def budget(
    name: str, coupling: float | None, kelvin: float, vibration: float, vibration_hz: float,
    loss: float, as_json: bool,
) -> None:  # fmt: skip
    """Follow the light of one channel: losses, noise, errors, frames, latency tail."""
    from dataclasses import asdict

    from lightloom.core.units import show_rate, show_time
    from lightloom.fabric.light import State, drift_hz, load_link, margin_db
    from lightloom.fabric.light import budget as follow
    from lightloom.show.light import parts_table, print_lines

    link = load_link(name)
    state = State(
        coupling=coupling, detuning_hz=drift_hz(kelvin), vibration_g=vibration,
        vibration_hz=vibration_hz, extra_db=loss,
    )  # fmt: skip
    b, spare = follow(link, state), margin_db(link, state)
    if as_json:
        echo_json(asdict(b) | {"margin_db": spare})
        return
    d = b.delivery
    print_lines(
        f"{link.title}: {link.bits_per_s / 1e9:g} Gb/s {link.format}, FEC {link.fec}",
        parts_table("loss", b.losses_db, "dB"),
        f"received {b.received_dbm:.2f} dBm of {link.laser_dbm:.2f} · margin {spare:.2f} dB",
        parts_table("noise", b.noise, "share"),
        f"Q {b.q:.2f} · BER before FEC {b.prefec_ber:.2e} · frames lost {d.frame_loss:.2e}",
        f"effective {show_rate(link.bits_per_s / 8 * d.efficiency)} "
        f"({100 * d.efficiency:.2f} % of the line) · frame {show_time(d.base_s)}, "
        + (f"{d.quantile:.6g} quantile {show_time(d.tail_s)}" if d.tail_s < 1e9 else "link down"),
        f"bit-clock jitter {show_time(link.bit_clock_jitter_s)} rms · packet delay variation "
        f"{show_time(link.packet_delay_variation_s)}: two quantities, not one",
    )


@light.command()
@click.option("--channels", type=int, default=128, show_default=True, help="on one fibre")
@click.option("--spacing", default="75 GHz", show_default=True, help="grid")
@click.option("--bands", default="", metavar="C[+L[+S]]", help="bands allowed; any if not said")
@click.option("--rate", default="80 Gb/s", show_default=True, help="of one channel")
@click.option("--format", "form", default="pam4", show_default=True, help="modulation")
@json_option
def grid(channels: int, spacing: str, bands: str, rate: str, form: str, as_json: bool) -> None:
    """Do the channels fit the band, and the rate its slot? Exit 4 where they do not."""
    from lightloom.core.units import parse_hertz, parse_rate
    from lightloom.fabric.light_grid import bands_for, check_channel

    step = parse_hertz(spacing, "--spacing")
    bits = 8 * parse_rate(rate, "--rate")
    need = check_channel(bits, form, step)
    used = bands_for(channels, step, tuple(b for b in bands.split("+") if b))
    if as_json:
        echo_json({"bands": used, "channel_hz": need, "total_hz": channels * step})
        return
    say(
        f"{channels} x {step / 1e9:g} GHz = {channels * step / 1e12:g} THz in band "
        f"{'+'.join(used)}; {bits / 1e9:g} Gb/s {form} takes {need / 1e9:g} GHz of each slot"
    )


@light.command()
@click.option("--from", "low", type=FINITE, default=20.0, show_default=True, help="room, Celsius")
@click.option("--to", "high", type=FINITE, default=70.0, show_default=True, help="room, Celsius")
@click.option("--seconds", type=FINITE, default=10.0, show_default=True, help="length of the ramp")
@click.option("--no-loop", is_flag=True, help="what the ring does without its loop")
@seed_option
@json_option
def lock(low: float, high: float, seconds: float, no_loop: bool, seed: int, as_json: bool) -> None:
    """Warm the room; does the heater loop hold the ring within 5 pm?"""
    import numpy as np

    from lightloom.fabric.light_lock import lock as hold

    out = hold(np.array([low, high]), seconds, seed=seed)
    drift = float(np.abs(out.open_loop_pm_T).max())
    facts = {"rms_pm": out.rms_pm, "worst_pm": out.worst_pm, "heater_headroom": out.headroom,
             "open_loop_pm": drift}  # fmt: skip
    if as_json:
        echo_json(facts)
        return
    if no_loop:
        say(f"without a loop: {drift:,.0f} pm over {high - low:g} degrees (80 pm each)")
        return
    verdict = "holds" if out.worst_pm <= 5 and out.headroom > 0 else "does not hold"
    say(
        f"{verdict}: residual {out.rms_pm:.2f} pm rms, {out.worst_pm:.2f} worst (limit 5 pm = 0.06 "
        f"degree); heater headroom {100 * out.headroom:.1f} %; open loop {drift:,.0f} pm"
    )
    if out.headroom <= 0:
        say("the heater is at its end: it cannot cool; lock at a higher temperature")


@light.command()
@click.option("--ber", type=FINITE, default=1e-15, show_default=True, help="rate to prove")
@click.option("--rate", default="80 Gb/s", show_default=True, help="of one channel")
@click.option("--seconds", type=FINITE, default=60.0, show_default=True, help="length of the test")
@click.option("--errors", type=int, default=0, show_default=True, help="errors counted in it")
@click.option("--confidence", type=FINITE, default=0.95, show_default=True, help="one-sided")
@json_option
def proof(
    ber: float, rate: str, seconds: float, errors: int, confidence: float, as_json: bool
) -> None:
    """What a bit error test has proven, and how long one must be."""
    from lightloom.core.errors import InputError
    from lightloom.core.units import parse_rate, show_time
    from lightloom.fabric.light_error import proof_seconds, proven

    if not 0 < ber < 0.5 or not 0 < confidence < 1 or seconds <= 0:
        raise InputError("a proof needs 0 < ber < 0.5, 0 < confidence < 1 and a test above 0 s")
    bits = 8 * parse_rate(rate, "--rate")
    need, shown = proof_seconds(ber, bits, confidence), proven(errors, bits * seconds, confidence)
    if as_json:
        echo_json({"needed_s": need, "proven_ber": shown, "verified": shown <= ber})
        return
    state = "verified" if shown <= ber else "not verified"
    say(
        f"BER {ber:g}: {state}. {show_time(seconds)} with {errors} errors at {bits / 1e9:g} Gb/s "
        f"prove BER < {shown:.2e} ({100 * confidence:g} %); {ber:g} needs {show_time(need)} "
        "without error on every channel"
    )


@light.command()
@click.option("--density", type=FINITE, default=0.1, show_default=True, help="rad per root hertz")
@click.option("--offset", default="10 kHz", show_default=True, help="where it was measured")
@json_option
def phase(density: float, offset: str, as_json: bool) -> None:
    """What a phase-noise reading means: linewidth, and radians rms from 1 kHz to 1 MHz."""
    from lightloom.core.units import parse_hertz
    from lightloom.fabric.light import linewidth_hz, phase_rms

    at = parse_hertz(offset, "--offset")
    width, rms = linewidth_hz(density, at), phase_rms(density, at, 1e3, 1e6)
    if as_json:
        echo_json({"linewidth_hz": width, "rms_rad": rms, "offset_hz": at})
        return
    say(
        f"{density:g} rad/rtHz at {at / 1e3:g} kHz is a linewidth of {width / 1e3:,.1f} kHz and "
        f"{rms:.3g} rad rms from 1 kHz to 1 MHz (white frequency noise)"
    )


@light.command()
@json_option
def reconfigure(as_json: bool) -> None:
    """Seconds of darkness for one change of circuits, part by part, by technology."""
    from lightloom.core.units import show_time
    from lightloom.fabric.light_age import load_switches
    from lightloom.show.light import grid as table
    from lightloom.show.light import print_lines

    known = load_switches()
    if as_json:
        echo_json({k: s.parts | {"total": s.seconds} for k, s in known.items()})
        return
    rows: list[tuple[Any, ...]] = [
        (name, show_time(s.seconds), *(show_time(x) for x in s.parts.values()))
        for name, s in known.items()
    ]
    print_lines(table(("switch", "dark", "switch", "laser", "clock", "control"), rows))


@light.command()
@click.option("--link", "name", default="spine", show_default=True, help="spine, board, module")
@click.option("--days", type=FINITE, default=30.0, show_default=True, help="in service")
@click.option("--ports", type=int, default=4, show_default=True, help="ports of the board")
@click.option("--fault", "faults", multiple=True, help="dirt:1@20d=0.6, coolant=0.85, drift=1 ...")
@seed_option
@json_option
def age(
    name: str, days: float, ports: int, faults: tuple[str, ...], seed: int, as_json: bool
) -> None:  # fmt: skip
    """What the probes of every port read after a time, with faults: input for diagnosis."""
    from lightloom.core.errors import InputError
    from lightloom.fabric.light import load_link
    from lightloom.fabric.light_age import aged, parse_light_fault, readings
    from lightloom.show.light import grid as table
    from lightloom.show.light import print_lines

    if days < 0 or not 1 <= ports <= 64:
        raise InputError(f"{days:g} days and {ports} ports: at least 0 days, 1 to 64 ports")
    link, hurt = load_link(name), [parse_light_fault(text) for text in faults]
    for fault in hurt:
        if fault.port is not None and fault.port >= ports:
            raise InputError(f"fault on port {fault.port}: ports are 0-{ports - 1}")
    rows = [
        readings(link, aged(link, hurt, 86400.0 * days, port), seed + port) for port in range(ports)
    ]
    if as_json:
        echo_json(rows)
        return
    print_lines(
        table(
            ("probe", *(f"port {port}" for port in range(ports))),
            [(metric, *(f"{row[metric]:.4g}" for row in rows)) for metric in rows[0]],
        )
    )


@light.command()
@click.option("--spans", type=int, default=3, show_default=True, help="spans and amplifiers")
@click.option("--km", type=FINITE, default=100.0, show_default=True, help="length of a span")
@click.option("--channels", type=int, default=96, show_default=True, help="on the fibre")
@click.option("--spacing", default="50 GHz", show_default=True, help="grid")
@click.option("--baud", type=FINITE, default=32e9, show_default=True, help="symbols a second")
@click.option("--dbm", type=FINITE, default=0.0, show_default=True, help="power of a channel")
@click.option("--against", type=click.Choice(["gnpy"]), default=None, help="a second opinion")
@json_option
def line(
    spans: int, km: float, channels: int, spacing: str, baud: float, dbm: float,
    against: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Signal over noise of an amplified line between two sites (not inside a machine)."""
    import numpy as np

    from lightloom.core.errors import InputError
    from lightloom.core.units import parse_hertz
    from lightloom.fabric.light_line import Line, Quality, quality

    step = parse_hertz(spacing, "--spacing")
    if spans < 1 or km <= 0 or channels < 2 or baud <= 0 or step < baud:
        raise InputError("a line needs a span, a length, two channels and slots wider than baud")
    frequency = (191.35e12 + step * np.arange(channels)).astype(np.float64)
    watts = 1e-3 * 10 ** (dbm / 10)
    course = Line(spans=spans, metres=1e3 * km)
    rows: dict[str, Quality] = {}
    if against:
        from lightloom.fabric.light_gnpy import peer

        rows["gnpy"], gamma, beta2 = peer(course, frequency, baud, watts)
        course = Line(spans=spans, metres=1e3 * km, gamma=gamma, beta2=beta2)
    rows = {"lightloom": quality(course, frequency, baud, watts), **rows}
    worst = {
        name: {"channel": int(np.argmin(q.total_db_C)), "total_db": float(q.total_db_C.min()),
               "ase_db": float(q.ase_db_C[np.argmin(q.total_db_C)]),
               "nli_db": float(q.nli_db_C[np.argmin(q.total_db_C)])}
        for name, q in rows.items()
    }  # fmt: skip
    if as_json:
        echo_json(worst)
        return
    for name, q in worst.items():
        say(
            f"{name}: worst channel {q['channel']} of {channels}: {q['total_db']:.2f} dB "
            f"(amplifiers {q['ase_db']:.2f}, nonlinearity {q['nli_db']:.2f})"
        )
