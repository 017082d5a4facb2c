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
    input logic [1:0] size,  // elements have 1 << size bytes; single ones are sign extended when read
    input logic [AW-1:0] wline,
    input logic [BW-1:0] wbyte,
    input logic [8*LINE_BYTES-1:0] wdata,
    input logic [31:0] welement,

    input logic re,
    input logic [AW-1:0] rline,
    input logic [BW-1:0] rbyte,
    output logic [31:0] q
);
  logic [8*LINE_BYTES-1:0] memory[2*LINES];

  always_ff @(posedge clk)
    if (whole || one) begin
      logic [31:0] word;  // the element, repeated
      word = size == 0 ? {4{welement[7:0]}} : size == 1 ? {2{welement[15:0]}} : welement;
      for (int i = 0; i < LINE_BYTES; i++)
      if (whole || BW'(i) >> size == wbyte >> size) memory[wline][8*i+:8] <= whole ? wdata[8*i+:8] : word[8*(i%4)+:8];
    end

  always_ff @(posedge clk)
    if (re) begin
      logic [31:0] word;
      word = memory[rline][{rbyte[BW-1:2], 5'b0}+:32] >> {rbyte[1:0], 3'b0};
      q <= size == 0 ? 32'($signed(word[7:0])) : word;
    end
endmodule
