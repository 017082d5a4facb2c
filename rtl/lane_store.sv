// Stores a vector: one or two lines where its elements are neighbours, else a line per element.
module lane_store
  import npu_pkg::*;
#(
    localparam int LINE_ADDR = ADDR_WIDTH - $clog2(LINE_BYTES)
) (
    input logic clk,
    input logic rst,

    input  logic                       valid,          // the inputs stay as they are until ready
    output logic                       ready,
    input  logic [               31:0] data  [LANES],
    input  logic [$clog2(LANES+1)-1:0] count,
    input  logic [                3:0] kind,
    input  logic [     ADDR_WIDTH-1:0] addr,
    input  logic [               31:0] stride,

    output logic                    wr_valid,
    input  logic                    wr_ready,
    output logic [   LINE_ADDR-1:0] wr_line,
    output logic [8*LINE_BYTES-1:0] wr_data,
    output logic [  LINE_BYTES-1:0] wr_strb
);
  localparam int SHIFT = $clog2(LINE_BYTES), LW = $clog2(LANES);
  logic [LW-1:0] part;  // line or lane
  logic [ADDR_WIDTH-1:0] hop;  // distance of lane `part`
  logic [2:0] width;
  logic together, last;
  logic [SHIFT:0] bytes, end_byte;
  logic [ADDR_WIDTH-1:0] at;

  assign width = convert_pkg::width_of(kind);
  assign together = stride == 32'(width);
  assign bytes = (SHIFT + 1)'(count) * (SHIFT + 1)'(width);
  assign end_byte = {1'b0, addr[SHIFT-1:0]} + bytes - 1;
  assign at = together ? addr : addr + hop;
  assign last = together ? part[0] == end_byte[SHIFT] : part == LW'(count - 1);
  assign wr_valid = valid;
  assign ready = valid && wr_ready && last;
  assign wr_line = at[ADDR_WIDTH-1:SHIFT] + LINE_ADDR'(together && part[0]);

  // Only when somebody looks: the simulator would otherwise convert in every cycle.
  always_comb begin
    logic [ 8*LINE_BYTES-1:0] packed_lanes;
    logic [16*LINE_BYTES-1:0] wide;
    logic [ 2*LINE_BYTES-1:0] mask;
    packed_lanes = 0;
    wide = 0;
    mask = 0;
    if (valid) begin
      for (int i = 0; i < LANES; i++) begin
        logic [31:0] raw;
        raw = convert_pkg::store(kind, data[together?LW'(i) : part]);
        case (width)
          4: packed_lanes[32*i+:32] = raw;
          2: packed_lanes[16*i+:16] = raw[15:0];
          default: packed_lanes[8*i+:8] = raw[7:0];
        endcase
      end
      mask = together ? ((2 * LINE_BYTES)'(1) << bytes) - 1 : ((2 * LINE_BYTES)'(1) << width) - 1;
      mask = mask << at[SHIFT-1:0];
      wide = {(8 * LINE_BYTES)'(0), packed_lanes} << {at[SHIFT-1:0], 3'b0};
    end
    wr_data = together && part[0] ? wide[16*LINE_BYTES-1:8*LINE_BYTES] : wide[8*LINE_BYTES-1:0];
    wr_strb = together && part[0] ? mask[2*LINE_BYTES-1:LINE_BYTES] : mask[LINE_BYTES-1:0];
  end

  always_ff @(posedge clk) begin
    if (wr_valid && wr_ready) begin
      part <= last ? 0 : part + 1;
      hop  <= last ? 0 : hop + ADDR_WIDTH'($signed(stride));
    end
    if (rst) begin
      part <= 0;
      hop  <= 0;
    end
  end
endmodule
