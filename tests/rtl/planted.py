"""python -m tests.rtl.planted: a bug in a copy of every module, and whether its bench finds it. Two copies, so that a
module is not found wrong because of one inside it. Exit status 1 if a bench passes.
"""

from __future__ import annotations

import shutil
import sys

from tests.rtl.__main__ import bench
from tests.rtl.build import ROOT, build

# Module: what is replaced, and by what.
LEAVES = {
    "axi_port": ("wr_pending[wr_out[WW-1:0]]", "wr_pending[wr_in[WW-1:0]]"),
    "divider": ("{digits[i], 25'b0, rest[i] != 0}", "{digits[i], 26'b0}"),
    "lane_access": ("width == 2 ? far << 1", "width == 2 ? far"),
    "lane_store": ("part[0] == end_byte[SHIFT]", "part[0] == (end_byte[SHIFT] && count > 2)"),
    "matrix_engine": ("keep = {32{!clear}}", "keep = {32{!clear || tile == 3}}"),
    "operand_lane": ("32'($signed(word[7:0]))", "32'(word[7:0])"),
    "registers": ("irq_status & ~s_wdata | (irq ? IRQ_DONE : 0)", "irq_status & ~s_wdata"),
    "sequencer": ("fetch == ASK && tail != fetched", "fetch == ASK && (tail != fetched || second)"),
    "vector_alu": ("y > 31 ? 5'd31", "y > 32 ? 5'd31"),
    "walker": ("a2   <= !end2 ? n2 : end1 ? n0 : n1", "a2   <= !end2 ? n2 : n1"),
}
UNITS = {
    "gemm_loader": ("at <= next_a_k", "at <= a_k"),
    "gemm_unit": ("c_m <= c_m + m_hop", "c_m <= c_m"),
    "npu_top": (".wr_strb(vec_wr_valid ? vec_wr_strb : gemm_wr_strb)", ".wr_strb(vec_wr_strb)"),
    "vector_unit": ("inflight < (QW + 1)'(RESULTS)", "inflight < (QW + 1)'(RESULTS + 9)"),
}


def main() -> int:
    status = 0
    for name, bugs in (("leaves", LEAVES), ("units", UNITS)):
        folder = ROOT / "build" / "benches" / f"planted-{name}"
        copy = folder / "rtl"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(ROOT / "rtl", copy)
        for module, (right, wrong) in bugs.items():
            text = (copy / f"{module}.sv").read_text()
            if right not in text:
                raise SystemExit(f"expected '{right}' in {module}.sv, got a file without it: plant another bug")
            (copy / f"{module}.sv").write_text(text.replace(right, wrong))
        program = build(folder, copy)
        for module in bugs:
            found = [text for passed, text in (bench(program, module, seed) for seed in (1, 2, 3)) if not passed]
            print(f"{'found' if found else 'MISSED'} {module}: {found[0][:300] if found else ''}", flush=True)
            status |= not found
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
