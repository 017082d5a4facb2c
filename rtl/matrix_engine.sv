// LANES x LANES multiply-accumulate units. Each cycle multiplies a column of A by a row of B and adds the products to one
// of TILES sets of accumulators, so every sum is taken in ascending order of k. bf16: the product is rounded to f32, then
// the sum is. int8: 32-bit sums that wrap.
module matrix_engine
  import npu_pkg::*;
#(
    parameter int TILES = TILE_ROWS * TILE_COLUMNS
) (
    input logic clk,
    input logic en,
    input logic clear,  // the sum starts at 0
    input logic narrow,  // int8 instead of bf16
    input logic [$clog2(TILES)-1:0] tile,
    input logic [15:0] a[LANES],
    input logic [15:0] b[LANES],

    input logic [$clog2(TILES)-1:0] out_tile,
    input logic [$clog2(LANES)-1:0] out_row,
    output logic [31:0] out[LANES]
);
  logic [31:0] sums[TILES][LANES*LANES];

  // The whole tile is computed in a local array and assigned at once: a simulator runs that several times faster.
  always_ff @(posedge clk)
    if (en) begin
      logic [31:0] next [LANES*LANES];
      logic [31:0] keep;
      next = sums[tile];
      keep = {32{!clear}};
      if (narrow) begin
        for (int i = 0; i < LANES; i++)
        for (int j = 0; j < LANES; j++) next[i*LANES+j] = (next[i*LANES+j] & keep) + 32'($signed(a[i]) * $signed(b[j]));
      end else begin
        for (int i = 0; i < LANES; i++)
        for (int j = 0; j < LANES; j++)
        next[i*LANES+j] = fp_pkg::add(next[i*LANES+j] & keep, fp_pkg::bf16_mul(a[i], b[j]));
      end
      sums[tile] <= next;
    end

  for (genvar j = 0; j < LANES; j++) begin : g_out
    assign out[j] = sums[out_tile][{out_row, $clog2(LANES)'(j)}];
  end
endmodule
