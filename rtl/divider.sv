// Division and square root, correctly rounded, a bit of the result per cycle. Takes new values only when it is idle.
module divider
  import npu_pkg::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic        go,
    input  logic        root,           // sqrt(a) instead of a / b
    input  logic [31:0] a     [LANES],
    input  logic [31:0] b     [LANES],
    output logic        done,           // for one cycle, with the result
    output logic [31:0] result[LANES]
);
  import fp_pkg::*;
  localparam int BITS = 26;  // 24 of the result, one to round with, one that a quotient below 1 costs

  logic busy, last;
  logic [$clog2(BITS+1)-1:0] step;
  logic [31:0] special[LANES];  // the result of zeros, infinities and NaN
  logic is_special[LANES], sign[LANES];
  logic signed [11:0] exponent[LANES];
  logic [BITS-1:0] digits[LANES];
  logic [BITS+1:0] rest[LANES];
  logic [2*BITS-1:0] operand[LANES];  // the divisor, or what is left of the radicand

  assign last = busy && step == $bits(step)'(BITS);

  always_ff @(posedge clk)
    if (go) begin
      for (int i = 0; i < LANES; i++) begin
        normal_t x, y;
        logic nan, infinite, zero, below;
        logic signed [11:0] e;
        x = normalize(a[i]);
        y = normalize(b[i]);
        e = 12'(x.e) - 12'sd127;
        below = x.sig < y.sig;
        nan = is_nan(a[i]) | (root ? a[i][31] & a[i][30:0] != 0 : is_nan(b[i]) |
                              (a[i][30:0] == INF & b[i][30:0] == INF) | (a[i][30:0] == 0 & b[i][30:0] == 0));
        infinite = a[i][30:0] == INF | (!root & b[i][30:0] == 0);
        zero = a[i][30:0] == 0 | (!root & b[i][30:0] == INF);
        sign[i] <= a[i][31] ^ (b[i][31] & !root);
        is_special[i] <= nan | infinite | zero;
        special[i] <= nan ? NAN : {a[i][31] ^ (b[i][31] & !root), infinite ? INF : 31'b0};
        exponent[i] <= root ? (e >>> 1) + 12'sd127 : e - 12'(y.e) + 12'sd254 - (below ? 12'sd1 : 12'sd0);
        digits[i] <= 0;
        rest[i] <= root ? 0 : below ? {3'b0, x.sig, 1'b0} : {4'b0, x.sig};
        operand[i] <= !root ? {28'b0, y.sig} : e[0] ? {x.sig, 28'b0} : {1'b0, x.sig, 27'b0};
      end
    end else if (busy && !last) begin
      for (int i = 0; i < LANES; i++) begin
        logic [BITS+1:0] from, trial;
        logic one;
        from  = root ? {rest[i][BITS-1:0], operand[i][2*BITS-1:2*BITS-2]} : rest[i];
        trial = root ? {digits[i], 2'b01} : operand[i][BITS+1:0];
        one   = from >= trial;
        from  = one ? from - trial : from;
        digits[i] <= {digits[i][BITS-2:0], one};
        rest[i]   <= root ? from : from << 1;
        if (root) operand[i] <= operand[i] << 2;
      end
    end

  always_ff @(posedge clk)
    if (last)
      for (int i = 0; i < LANES; i++)
        result[i] <= is_special[i] ? special[i] : round(sign[i], exponent[i], {digits[i], 25'b0, rest[i] != 0});

  always_ff @(posedge clk) begin
    done <= last;
    if (go) begin
      busy <= 1;
      step <= 0;
    end else if (busy) begin
      step <= step + 1;
      if (last) busy <= 0;
    end
    if (rst) begin
      busy <= 0;
      done <= 0;
    end
  end
endmodule
