// The elements of one row of A or one column of B that the matrix engine will need: LINES lines in each of two halves, so
// that one is filled while the other is read. Written by lines or by single elements, hence a memory with byte enables.
module operand_lane
  import npu_pkg::*;
#(
    parameter int LINES = 4,  // per half
    localparam int AW = $clog2(2 * LINES),
    localparam int BW = $clog2(LINE_BYTES)
) (
    input logic clk,

    input logic whole,  // write a line
    input logic one,  // write an element, at `wbyte`
    input logic narrow,  // elements have one byte and are sign extended when read; otherwise two
    input logic [AW-1:0] wline,
    input logic [BW-1:0] wbyte,
    input logic [8*LINE_BYTES-1:0] wdata,
    input logic [15:0] welement,

    input logic re,
    input logic [AW-1:0] rline,
    input logic [BW-1:0] rbyte,
    output logic [15:0] q
);
  logic [8*LINE_BYTES-1:0] memory[2*LINES];

  always_ff @(posedge clk)
    if (whole || one)
      for (int i = 0; i < LINE_BYTES; i++)
        if (whole || (narrow ? BW'(i) == wbyte : BW'(i) >> 1 == wbyte >> 1))
          memory[wline][8*i+:8] <= whole ? wdata[8*i+:8] : i % 2 == 1 && !narrow ? welement[15:8] : welement[7:0];

  always_ff @(posedge clk)
    if (re) begin
      logic [15:0] pair;
      pair = memory[rline][{rbyte[BW-1:1], 4'b0}+:16];
      q <= !narrow ? pair : rbyte[0] ? 16'($signed(pair[15:8])) : 16'($signed(pair[7:0]));
    end
endmodule
