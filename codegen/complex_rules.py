"""Complex arithmetic, written in the op table's own language over real and imaginary parts.

A rule is the result of a function for a complex argument z (and w): `complex(a, b)` makes a number of two parts, `real`
and `imag` take one, and every function of a complex value is a rule again. The programs that come out are real: the
contract has no complex type.

Where a formula has a simpler form that overflows early or loses digits, the longer one is used: quotients are scaled
by the larger part of the divisor (Smith), inverse functions go through two square roots (Kahan), which also puts the
signs of zeros on the right side of every branch cut.
"""

RULES = {
    "abs": "hypot(real(z), imag(z))",
    "angle": "atan2(imag(z), real(z))",
    "conj": "complex(real(z), -imag(z))",
    "neg": "complex(-real(z), -imag(z))",
    "isnan": "isnan(real(z)) | isnan(imag(z))",
    "isinf": "isinf(real(z)) | isinf(imag(z))",
    "sgn": "r = abs(z); zero = r == 0; complex(where(zero, 0, real(z) / r), where(zero, 0, imag(z) / r))",
    # ---- quotients
    "div": """
c = abs(real(w)); d = abs(imag(w)); high = c >= d
p = where(high, real(w), imag(w)); q = where(high, imag(w), real(w)); t = q / p; s = p + q * t
x = where(high, real(z), imag(z)); y = where(high, imag(z), real(z))
zero = p == 0; u = (y - x * t) / s
complex(where(zero, real(z) / c, (x + y * t) / s), where(zero, imag(z) / c, where(high, u, -u)))""",
    "reciprocal": "complex(1, 0) / z",
    "rsqrt": "complex(1, 0) / sqrt(z)",
    # ---- powers and logarithms. A zero part stays zero, also beside an infinity.
    "exp": """
a = real(z); b = imag(z); e = exp(a); none = e == 0; wild = (a == inf) & (b - b != 0)
complex(where(none, 0, where(wild, inf, e * cos(b))), where(b == 0, b, where(none, 0, e * sin(b))))""",
    "exp2": "exp(z * log(2))",
    "expm1": "a = real(z); b = imag(z); h = sin(b / 2); complex(expm1(a) * cos(b) - 2 * h * h, exp(a) * sin(b))",
    "log": """
r = abs(z); c = abs(real(z)); d = abs(imag(z)); m = max(c, d); n = min(c, d)
near = log1p(fma(n, n, (m - 1) * (m + 1))) / 2
complex(where((r > 0.5) & (r < 2), near, log(r)), angle(z))""",
    "log2": "log(z) * (1 / log(2))",
    "log10": "log(z) * (1 / log(10))",
    "log1p": """
a = real(z); b = imag(z)
near = log1p(a * (2 + a) + b * b) / 2
complex(where((abs(a) < 0.5) & (abs(b) < 0.5), near, log(hypot(1 + a, b))), atan2(b, 1 + a))""",
    "sqrt": """
a = real(z); b = imag(z); t = sqrt(abs(a) / 2 + hypot(a, b) / 2)
u = where(t == 0, b, where(isinf(b), b, b / (2 * t))); low = a < 0
complex(where(low, abs(u), t), where(low, copysign(t, b), u))""",
    # In double, because exp magnifies what the product has lost.
    "pow": """
x = complex(f64(real(z)), f64(imag(z))); y = complex(f64(real(w)), f64(imag(w))); p = exp(y * log(x))
complex(number(real(p)), number(imag(p)))""",
    "sigmoid": """
low = real(z) < 0; x = where(low, z, -z); e = exp(x)
where(low, e, complex(1, 0)) / (1 + e)""",
    # ---- circular and hyperbolic functions
    "sinh": """
a = real(z); b = imag(z)
complex(where(a == 0, a, sinh(a) * cos(b)), where(b == 0, b, cosh(a) * sin(b)))""",
    "cosh": "a = real(z); b = imag(z); complex(cosh(a) * cos(b), where((a == 0) | (b == 0), a * b, sinh(a) * sin(b)))",
    "sin": "t = sinh(complex(-imag(z), real(z))); complex(imag(t), -real(t))",
    "cos": "cosh(complex(-imag(z), real(z)))",
    "tanh": """
a = real(z); b = imag(z); t = tan(b); s = sinh(a); f = 1 + t * t; d = 1 + f * s * s; far = abs(a) > 20
complex(where(far, copysign(1, a), f * sqrt(1 + s * s) * s / d),
        where(far, 4 * sin(b) * cos(b) * exp(-2 * abs(a)), t / d))""",
    "tan": "t = tanh(complex(-imag(z), real(z))); complex(imag(t), -real(t))",
    "asin": """
p = sqrt(1 - z); q = sqrt(1 + z)
complex(atan2(real(z), real(p * q)), asinh(imag(conj(p) * q)))""",
    "acos": """
p = sqrt(1 - z); q = sqrt(1 + z)
complex(2 * atan2(real(p), real(q)), asinh(imag(conj(q) * p)))""",
    "acosh": """
p = sqrt(z - 1); q = sqrt(z + 1)
complex(asinh(real(conj(p) * q)), 2 * atan2(imag(p), real(q)))""",
    "asinh": "w = asin(complex(imag(z), -real(z))); complex(-imag(w), real(w))",
    "atanh": """
a = abs(real(z)); b = imag(z); m = 1 - a
re = log1p(4 * a / (m * m + b * b)) / 4; im = atan2(2 * b, m * (1 + a) - b * b) / 2
complex(copysign(where(isinf(a) | isinf(b), 0, re), real(z)), where(isinf(a) | isinf(b), copysign(pi / 2, b), im))""",
    "atan": "t = atanh(complex(-imag(z), real(z))); complex(imag(t), -real(t))",
}
