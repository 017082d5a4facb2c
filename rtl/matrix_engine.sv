// LANES x LANES multiply-accumulate units. Each step multiplies a column of A by a row of B and adds the products to one
// of TILES sets of accumulators, so every sum is taken in ascending order of k. bf16: the product is rounded to f32, then
// the sum is. int8: 32-bit sums that wrap. f32: the multipliers have 8 bits, so a significand is taken in three parts and
// a step takes PASSES cycles; the product of the significands is complete before it is rounded.
module matrix_engine
  import npu_pkg::*;
#(
    parameter int TILES = TILE_ROWS * TILE_COLUMNS
) (
    input logic clk,
    input logic en,
    input logic clear,  // the sum starts at 0
    input logic narrow,  // int8 instead of bf16
    input logic wide,  // f32
    input logic [3:0] pass,  // of PASSES, where wide
    input logic [LANES-1:0] gap,  // columns that take no part in this step
    input logic [$clog2(TILES)-1:0] tile,
    input logic [31:0] a[LANES],  // in the low bits
    input logic [31:0] b[LANES],

    input logic [$clog2(TILES)-1:0] out_tile,
    input logic [$clog2(LANES)-1:0] out_row,
    output logic [31:0] out[LANES]
);
  logic [31:0] sums[TILES][LANES*LANES];
  logic [47:0] partial[LANES*LANES];  // products of significands

  // The whole tile is computed in a local array and assigned at once: a simulator runs that several times faster.
  always_ff @(posedge clk)
    if (en) begin
      logic [31:0] next [LANES*LANES];
      logic [31:0] keep;
      keep = {32{!clear}};
      if (wide) begin
        logic [47:0] grown[LANES*LANES];
        logic [7:0] x[LANES], y[LANES];
        logic [1:0] i_part, j_part;
        logic [5:0] place;
        i_part = 2'(pass / 3);
        j_part = 2'(pass % 3);
        place  = {3'(i_part) + 3'(j_part), 3'b0};
        for (int i = 0; i < LANES; i++) begin
          x[i] = fp_pkg::part(a[i], i_part);
          y[i] = fp_pkg::part(b[i], j_part);
        end
        grown = partial;
        for (int i = 0; i < LANES; i++) begin
          for (int j = 0; j < LANES; j++)
          grown[i*LANES+j] = (pass == 0 ? 48'b0 : grown[i*LANES+j]) + (48'({8'b0, x[i]} * {8'b0, y[j]}) << place);
        end
        partial <= grown;
        if (pass == 4'(PASSES - 1)) begin
          next = sums[tile];
          for (int i = 0; i < LANES; i++) begin
            for (int j = 0; j < LANES; j++) begin
              logic [31:0] p;
              p = fp_pkg::product(a[i], b[j], grown[i*LANES+j]);
              next[i*LANES+j] = fp_pkg::add(next[i*LANES+j] & keep, p & {32{!gap[j]}});
            end
          end
          sums[tile] <= next;
        end
      end else begin
        next = sums[tile];
        if (narrow) begin
          for (int i = 0; i < LANES; i++)
          for (int j = 0; j < LANES; j++)
          next[i*LANES+j] = (next[i*LANES+j] & keep) + 32'($signed(a[i][15:0]) * $signed(b[j][15:0]));
        end else begin
          for (int i = 0; i < LANES; i++)
          for (int j = 0; j < LANES; j++)
          next[i*LANES+j] =
              fp_pkg::add(next[i*LANES+j] & keep, fp_pkg::bf16_mul(a[i][15:0], b[j][15:0]) & {32{!gap[j]}});
        end
        sums[tile] <= next;
      end
    end

  for (genvar j = 0; j < LANES; j++) begin : g_out
    assign out[j] = sums[out_tile][{out_row, $clog2(LANES)'(j)}];
  end
endmodule
