"""Writes codegen/series.py: Chebyshev series of special functions, for the op table's series(name, t).

    python codegen/fit.py

Each function is smooth in a variable t on [-1, 1]; its coefficients are computed with mpmath (a dependency of torch)
and cut where the rest is below double precision. Needed again only when a series is added.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mpmath import mp, mpf

mp.dps = 40
POINTS = 80


def coefficients(f: Callable[[mpf], mpf], low: float, high: float, tolerance: float = 2e-16) -> list[float]:
    """The series of f on [low, high], by interpolation in the zeros of a Chebyshev polynomial."""
    low, high = mpf(low), mpf(high)
    angles = [mp.pi * (k + mpf(1) / 2) / POINTS for k in range(POINTS)]
    values = [f((high + low) / 2 + (high - low) / 2 * mp.cos(a)) for a in angles]
    series = [
        2 * sum(v * mp.cos(j * a) for v, a in zip(values, angles, strict=True)) / POINTS for j in range(POINTS // 2)
    ]
    series[0] /= 2
    bound = tolerance * max(abs(v) for v in values)
    while abs(series[-1]) < bound:
        series.pop()
    return [float(c) for c in series]


def hankel(order: int, x: mpf) -> mp.mpc:
    """P + iQ of the modulus and phase form of the Bessel functions of large arguments."""
    phase = x - (2 * order + 1) * mp.pi / 4
    return (mp.besselj(order, x) + 1j * mp.bessely(order, x)) * mp.sqrt(mp.pi * x / 2) * mp.expj(-phase)


def of_square(f: Callable[[mpf], mpf]) -> Callable[[mpf], mpf]:
    """f of x as a function of x * x, with its limit at 0."""
    return lambda s: f(mp.sqrt(max(s, mpf(10) ** -30)))


def far(f: Callable[[mpf], mpf], split: int) -> Callable[[mpf], mpf]:
    """f of x as a function of split / x."""
    return lambda y: f(split / max(y, mpf(10) ** -6))


def far_square(f: Callable[[mpf], mpf], split: int) -> Callable[[mpf], mpf]:
    return lambda y: f(split / mp.sqrt(max(y, mpf(10) ** -8)))


def airy_wave(x: mpf) -> mp.mpc:
    """Ai(-x) is the real part of this times exp(i (zeta - pi / 4)) / (sqrt(pi) * x ** (1/4))."""
    zeta = mpf(2) / 3 * x ** mpf(1.5)
    return (mp.airyai(-x) - 1j * mp.airybi(-x)) * mp.sqrt(mp.pi) * x ** mpf(0.25) * mp.expj(mp.pi / 4 - zeta)


def all_series() -> dict[str, list[float]]:
    exp, log, sqrt = mp.exp, mp.log, mp.sqrt
    found = {
        # I0 and I1 for the argument a >= 0: t = a / 4 - 1 up to 8, t = 16 / a - 1 beyond.
        "i0e_near": coefficients(lambda x: exp(-x) * mp.besseli(0, x), 0, 8),
        "i0e_far": coefficients(far(lambda x: sqrt(x) * exp(-x) * mp.besseli(0, x), 8), 0, 1),
        "i1e_near": coefficients(lambda x: exp(-x) * mp.besseli(1, x) / x if x else mpf(0.5), 0, 8),
        "i1e_far": coefficients(far(lambda x: sqrt(x) * exp(-x) * mp.besseli(1, x), 8), 0, 1),
        # K0 and K1: t = x * x / 2 - 1 up to 2, t = 4 / x - 1 beyond.
        "i0_small": coefficients(of_square(lambda x: mp.besseli(0, x)), 0, 4),
        "i1_small": coefficients(of_square(lambda x: mp.besseli(1, x) / x), 0, 4),
        "k0_small": coefficients(of_square(lambda x: mp.besselk(0, x) + log(x / 2) * mp.besseli(0, x)), 0, 4),
        "k1_small": coefficients(of_square(lambda x: x * (mp.besselk(1, x) - log(x / 2) * mp.besseli(1, x))), 0, 4),
        "k0e_far": coefficients(far(lambda x: sqrt(x) * exp(x) * mp.besselk(0, x), 2), 0, 1),
        "k1e_far": coefficients(far(lambda x: sqrt(x) * exp(x) * mp.besselk(1, x), 2), 0, 1),
        # J and Y: t = x * x / 32 - 1 up to 8, t = 128 / (x * x) - 1 beyond.
        "j0_near": coefficients(of_square(lambda x: mp.besselj(0, x)), 0, 64),
        "j1_near": coefficients(of_square(lambda x: mp.besselj(1, x) / x), 0, 64),
        "y0_near": coefficients(of_square(lambda x: mp.bessely(0, x) - 2 / mp.pi * log(x) * mp.besselj(0, x)), 0, 64),
        "y1_near": coefficients(
            of_square(lambda x: (mp.bessely(1, x) - 2 / mp.pi * (log(x) * mp.besselj(1, x) - 1 / x)) / x), 0, 64
        ),
        "p0_far": coefficients(far_square(lambda x: hankel(0, x).real, 8), 0, 1),
        "q0_far": coefficients(far_square(lambda x: hankel(0, x).imag * x, 8), 0, 1),
        "p1_far": coefficients(far_square(lambda x: hankel(1, x).real, 8), 0, 1),
        "q1_far": coefficients(far_square(lambda x: hankel(1, x).imag * x, 8), 0, 1),
        # erfcx for x >= 0: (1 + 2 x) erfcx(x) with t = (x - 4) / (x + 4).
        "erfcx": coefficients(
            lambda t: (1 + 2 * (x := 4 * (1 + t) / (1 - t))) * exp(x * x) * mp.erfc(x),
            -1,
            1,
        ),
        # Ai: t = (x + 1) / 3 on [-4, 2]; beyond 2 t = 2 * (2 / x) ** 1.5 - 1, below -4 t = 2 * (4 / -x) ** 3 - 1.
        "airy_near": coefficients(mp.airyai, -4, 2, 4e-11),
        "airy_right": coefficients(
            lambda y: (
                2
                * sqrt(mp.pi)
                * (x := 2 / max(y, mpf(10) ** -5) ** (mpf(2) / 3)) ** mpf(0.25)
                * exp(mpf(2) / 3 * x ** mpf(1.5))
                * mp.airyai(x)
            ),
            0,
            1,
            4e-11,
        ),
        "airy_cos": coefficients(lambda y: airy_wave(4 / mp.cbrt(max(y, mpf(10) ** -8))).real, 0, 1, 4e-11),
        "airy_sin": coefficients(
            lambda y: (x := 4 / mp.cbrt(max(y, mpf(10) ** -8))) ** mpf(1.5) * airy_wave(x).imag, 0, 1, 4e-11
        ),
    }
    return found


def main() -> None:
    lines = ['"""Chebyshev series on [-1, 1], lowest first. Made by codegen/fit.py."""', "", "# fmt: off", "SERIES = {"]
    for name, values in all_series().items():
        lines.append(f'    "{name}": (')
        lines += [f"        {value!r}," for value in values]
        lines.append("    ),")
    lines += ["}", ""]
    Path(__file__).with_name("series.py").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
