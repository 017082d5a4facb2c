"""The index space of a kernel: Inductor's flattened ranges as the dimensions of a command, and addresses in them.

Inductor describes a loop as a flat index per tree (x for points, r for what is folded) and variables that are pieces of
it: flat // divisor % length. If the ends of all pieces divide each other, the pieces between them are the dimensions,
and every variable is a sum of coordinates: no division remains. A piece that does not fit is computed from the flat
index."""

import itertools
import math

import sympy
from torch._inductor.utils import sympy_index_symbol, sympy_subs
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import FloorDiv, Identity, ModularIndexing
from torch.utils._sympy.symbol import SymT, symbol_is_type

MAX_RANK = 8


def plain(expr) -> sympy.Expr:
    """Without names for sizes that Inductor would have computed on the side."""
    return V.graph.sizevars.remove_precomputed_replacements(sympy.sympify(expr))


def hint(expr) -> int:
    return V.graph.sizevars.optimization_hint(expr, fallback=8192)


def quotient(b, a) -> sympy.Expr | None:
    """b / a, if that is known to be an integer."""
    if isinstance(a, sympy.Integer) and isinstance(b, sympy.Integer):
        return b // a if a != 0 and b % a == 0 else None
    exact = sympy.cancel(b / a)
    if sympy.denom(sympy.together(exact)) == 1:
        return exact
    return FloorDiv(b, a) if V.graph.sizevars.statically_known_multiple_of(b, a) else None


class Space:
    def __init__(self, trees, indices, single_inner: bool = False, shape=None, order=None) -> None:
        """Cut by `indices`; or, with `shape`, the points have just these dimensions. The command then has number d of
        them in the place order.index(d)."""
        self.trees = trees
        self.sizes: list[sympy.Expr] = []  # of all dimensions, outermost first
        self.symbols: list[sympy.Symbol] = []
        self.inner_rank = 0
        self._pieces: dict = {}  # tree prefix: its dimensions as (symbol, size, divisor), innermost first
        points = [self._cuts(t, indices) if not (single_inner and t.is_reduction) else [t.numel] for t in trees]
        if shape is not None:
            points[0] = [numel(shape[k:]) for k in reversed(range(len(shape)))]
        while sum(map(len, points)) > MAX_RANK:  # give up the cut that saves least: the innermost of the longest list
            max(points, key=len).pop(0)
        numbers = itertools.count()
        for tree, ends in zip(trees, points):
            pieces, begin = [], sympy.S.One
            for end in ends:
                pieces.append((sympy_index_symbol(f"h{next(numbers)}"), plain(quotient(end, begin)), begin))
                begin = end
            self._pieces[tree.prefix] = pieces
            self.symbols += [p[0] for p in reversed(pieces)]
            self.sizes += [p[1] for p in reversed(pieces)]
            self.inner_rank += len(pieces) if tree.is_reduction else 0
        if order is not None:
            self.symbols[: len(order)] = [self.symbols[order.index(d)] for d in range(len(order))]
            self.sizes[: len(order)] = [self.sizes[order.index(d)] for d in range(len(order))]
        self.ranges = dict(zip(self.symbols, self.sizes))
        self.number = {s: k for k, s in enumerate(self.symbols)}

    def _cuts(self, tree, indices) -> list[sympy.Expr]:
        """Where pieces end, innermost first, each a multiple of the one before; the last is the whole range."""
        whole = plain(tree.numel)
        ends = {whole}
        nodes = {n.symbol(): n for n in tree.nodes.values()}
        for index in indices:
            for symbol in index.free_symbols & nodes.keys():
                node = nodes[symbol]
                ends |= {plain(node.divisor), plain(node.divisor * node.length)}
            for part in index.atoms(FloorDiv, ModularIndexing):
                if part.args[0] in nodes and not any(a.has(*nodes) for a in part.args[1:]):
                    node = nodes[part.args[0]]
                    ends.add(plain(node.divisor * part.args[1]))
                    if isinstance(part, ModularIndexing):
                        ends.add(plain(node.divisor * part.args[1] * part.args[2]))
        cuts, last = [], sympy.S.One
        for end in sorted(ends, key=lambda e: (hint(e), str(e))):
            known = V.graph.sizevars.statically_known_equals
            if known(end, last) or quotient(end, last) is None or quotient(whole, end) is None:
                continue
            cuts.append(end)
            last = end
        return cuts

    def flat(self, tree) -> sympy.Expr:
        return sympy.Add(*[symbol * divisor for symbol, _, divisor in self._pieces[tree.prefix]])

    def variable(self, node) -> sympy.Expr:
        """An iteration variable of Inductor's in coordinates."""
        known = V.graph.sizevars.statically_known_equals
        pieces = self._pieces[node.root.prefix]
        begin = plain(node.divisor)
        end = plain(node.divisor * node.length)
        if known(begin, end):
            return sympy.S.Zero
        first = next((k for k, p in enumerate(pieces) if known(p[2], begin)), None)
        if first is not None:
            for last in range(first, len(pieces)):
                if known(pieces[last][2] * pieces[last][1], end):
                    within = pieces[first : last + 1]
                    return sympy.Add(*[p[0] * numel(q[1] for q in within[:k]) for k, p in enumerate(within)])
        return ModularIndexing(self.flat(node.root), begin, plain(node.length))

    def coordinates(self, index: sympy.Expr, nodes) -> sympy.Expr:
        """`index`, which Inductor has simplified, in coordinates of this space."""
        index = index.replace(Identity, lambda inside: inside)  # of a cat: it hides a sum, which here is an offset
        replaced = {s: self.variable(nodes[s]) for s in index.free_symbols if s in nodes}
        index = sympy_subs(plain(index), replaced) if replaced else plain(index)
        if index.has(FloorDiv, ModularIndexing):
            index = V.graph.sizevars.simplify_with_ranges(index, self.ranges)
        return index

    def split(self, index: sympy.Expr) -> tuple[sympy.Expr, tuple[sympy.Expr, ...], sympy.Expr]:
        """Offset and strides, and the rest that has to be computed."""
        offset, strides, rest = sympy.S.Zero, [sympy.S.Zero] * len(self.symbols), sympy.S.Zero
        for term in sympy.Add.make_args(sympy.expand(index)):
            moving = [s for s in term.free_symbols if s in self.number or symbol_is_type(s, (SymT.TMP, SymT.INDIRECT))]
            if not moving:
                offset += term
                continue
            stride = term.coeff(moving[0]) if len(moving) == 1 and moving[0] in self.number else sympy.S.Zero
            if stride != 0 and term == stride * moving[0]:
                strides[self.number[moving[0]]] += stride
            else:
                rest += term
        return offset, tuple(strides), rest


def static(expr) -> int | None:
    """Its value, if that is known when the graph is compiled."""
    return int(expr) if isinstance(expr, (int, sympy.Integer)) or getattr(expr, "is_Integer", False) else None


def numel(sizes) -> sympy.Expr:
    return math.prod(map(plain, sizes), start=sympy.S.One)
