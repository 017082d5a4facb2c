// Walks the four dimensions of an operand in row-major order, a vector of up to LANES elements of one row at a time.
module walker
  import npu_pkg::*;
(
    input  logic                             clk,
    input  logic                             start,     // the first vector, in the next cycle
    input  logic                             step,      // the next one
    input  logic [     ADDR_WIDTH-1:0]       base,
    input  logic [                3:0][31:0] size,
    input  logic [                3:0][31:0] stride,
    output logic [     ADDR_WIDTH-1:0]       addr,      // of the vector's first element
    output logic [$clog2(LANES+1)-1:0]       count,     // elements in it
    output logic                             row_last,  // the last of its row
    output logic                             last       // the last of all
);
  logic [31:0] i0, i1, i2, left;
  logic [ADDR_WIDTH-1:0] a0, a1, a2, n0, n1, n2;
  logic end1, end2;

  function automatic logic [ADDR_WIDTH-1:0] extend(logic [31:0] value);
    return ADDR_WIDTH'($signed(value));
  endfunction

  assign row_last = left <= LANES;
  assign count = row_last ? $bits(count)'(left) : $bits(count)'(LANES);
  assign end2 = i2 == size[2] - 1;
  assign end1 = i1 == size[1] - 1;
  assign last = row_last && end2 && end1 && i0 == size[0] - 1;
  assign n2 = a2 + extend(stride[2]);
  assign n1 = a1 + extend(stride[1]);
  assign n0 = a0 + extend(stride[0]);

  always_ff @(posedge clk) begin
    if (start) begin
      {i0, i1, i2} <= 0;
      left <= size[3];
      a0 <= base;
      a1 <= base;
      a2 <= base;
      addr <= base;
    end else if (step) begin
      if (!row_last) begin
        left <= left - LANES;
        addr <= addr + extend(stride[3]) * ADDR_WIDTH'(LANES);
      end else begin
        left <= size[3];
        i2   <= end2 ? 0 : i2 + 1;
        if (end2) i1 <= end1 ? 0 : i1 + 1;
        if (end2 && end1) begin
          i0 <= i0 + 1;
          a0 <= n0;
        end
        a1   <= !end2 ? a1 : end1 ? n0 : n1;
        a2   <= !end2 ? n2 : end1 ? n0 : n1;
        addr <= !end2 ? n2 : end1 ? n0 : n1;
      end
    end
  end
endmodule
