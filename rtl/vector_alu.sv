// One operation on LANES pairs (or triples) of values; the result is there one cycle after `go`. Lanes from `keep_from`
// on yield a.
module vector_alu
  import npu_pkg::*;
(
    input  logic                       clk,
    input  logic                       go,
    input  logic [                7:0] op,
    input  logic [$clog2(LANES+1)-1:0] keep_from,
    input  logic [               31:0] a        [LANES],
    input  logic [               31:0] b        [LANES],
    input  logic [               31:0] c        [LANES],
    output logic [               31:0] result   [LANES]
);
  import fp_pkg::*;

  always_ff @(posedge clk)
    if (go) begin
      logic [31:0] r[LANES];
      for (int i = 0; i < LANES; i++) begin
        logic [31:0] x, y, z;
        logic none, swap;
        logic [63:0] long;
        x = a[i];
        y = b[i];
        z = c[i];
        none = is_nan(x) | is_nan(y);
        long = 0;
        swap = op == VEC_MIN ? less(y, x) : less(x, y);
        case (op)
          VEC_ADD: r[i] = add(x, y);
          VEC_SUB: r[i] = add(x, {~y[31], y[30:0]});
          VEC_MUL: r[i] = fma(x, y, 32'h8000_0000);
          VEC_FMA: r[i] = fma(x, y, z);
          VEC_MIN, VEC_MAX: r[i] = none ? NAN : swap ? y : x;
          VEC_EQ: r[i] = {31'b0, !none & !less(x, y) & !less(y, x)};
          VEC_LT: r[i] = {31'b0, !none & less(x, y)};
          VEC_LE: r[i] = {31'b0, !none & !less(y, x)};
          VEC_SELECT: r[i] = x != 0 ? y : z;
          VEC_I2F: r[i] = from_int(x);
          VEC_F2I: r[i] = to_int(x);
          VEC_IADD, VEC_IOTA: r[i] = x + y;
          VEC_ISUB: r[i] = x - y;
          VEC_IMUL: r[i] = x * y;
          VEC_IEQ: r[i] = {31'b0, x == y};
          VEC_ILT: r[i] = {31'b0, $signed(x) < $signed(y)};
          VEC_AND: r[i] = x & y;
          VEC_OR: r[i] = x | y;
          VEC_XOR: r[i] = x ^ y;
          VEC_IMIN: r[i] = $signed(y) < $signed(x) ? y : x;
          VEC_IMAX: r[i] = $signed(y) > $signed(x) ? y : x;
          VEC_FLOOR: r[i] = integral(x, 1);
          VEC_ROUND: r[i] = integral(x, 0);
          VEC_SHL: r[i] = y > 31 ? 0 : x << y[4:0];
          VEC_SHR: r[i] = $signed(x) >>> (y > 31 ? 5'd31 : y[4:0]);
          VEC_ULT: r[i] = {31'b0, x < y};
          VEC_UMULH: begin
            long = {32'b0, x} * {32'b0, y};
            r[i] = long[63:32];
          end
          VEC_L2F: r[i] = from_long({y, x});
          VEC_F2L, VEC_F2H: begin
            long = to_long(x);
            r[i] = op == VEC_F2L ? long[31:0] : long[63:32];
          end
          default: r[i] = x;
        endcase
        if (i >= int'(keep_from)) r[i] = x;
      end
      result <= r;
    end
endmodule
