// Takes packets from the ring one after the other: checks them, starts a unit, waits for it and for its stores, and
// retires the packet; the lines of the next one are read meanwhile. A packet that fails stops the ring until a reset.
module sequencer
  import npu_pkg::*;
  import packet_pkg::*;
#(
    localparam int LINE_ADDR = ADDR_WIDTH - $clog2(LINE_BYTES)
) (
    input logic clk,
    input logic rst,

    input  logic                 enable,
    input  logic [LINE_ADDR-1:0] ring,
    input  logic [         31:0] ring_size,
    input  logic [         31:0] tail,
    output logic [         31:0] head,
    output logic [         31:0] retired,
    output logic                 busy,
    output logic                 irq,        // for one cycle: a packet with FLAG_IRQ retired
    output logic                 error,
    output logic [          7:0] error_code,

    output packet_t       packet,
    output logic    [2:0] sources,       // operands a, b, c that VECTOR and REDUCE read
    output logic          start_vector,
    output logic          start_gemm,
    input  logic          unit_done,
    input  logic          check_failed,
    input  logic          stored,        // no store is on its way
    input  logic          bus_error,

    output logic                    rd_valid,
    input  logic                    rd_ready,
    output logic [   LINE_ADDR-1:0] rd_line,
    input  logic                    rsp_valid,
    input  logic [8*LINE_BYTES-1:0] rsp_data
);
  typedef enum logic [2:0] {
    WAIT,
    CHECK,
    RUN,
    DRAIN,
    STOPPED
  } state_t;
  typedef enum logic [1:0] {
    ASK,
    GET,
    READY
  } fetch_t;
  state_t state;
  fetch_t fetch;
  packet_t next;  // the packet behind the one at work
  logic second;  // its line with the strides
  logic [31:0] fetched, slot;  // lines read so far
  logic is_sync, is_gemm, is_reduce, is_gather, is_scatter;

  assign is_sync = packet.opcode == OP_SYNC;
  assign is_reduce = packet.opcode == OP_REDUCE;
  assign is_gemm = packet.opcode == OP_GEMM;
  assign is_gather = packet.opcode == OP_GATHER;
  assign is_scatter = packet.opcode == OP_SCATTER;
  assign busy = enable && tail != head && !error;
  assign error = state == STOPPED;
  assign rd_valid = enable && fetch == ASK && tail != fetched;
  assign slot = fetched & (ring_size - 1);
  assign rd_line = ring + LINE_ADDR'(slot);

  // ---- check ----
  logic [ 2:0] arguments;  // of the operation
  logic [ 3:0] touched;  // operands in memory
  logic [ 7:0] wrong;
  logic [31:0] width;  // of a GEMM's inputs
  always_comb begin
    case (packet.op)
      VEC_MOV, VEC_I2F, VEC_F2I, VEC_FLOOR, VEC_ROUND, VEC_SQRT, VEC_F2L, VEC_F2H, VEC_IOTA, VEC_CHECK:
      arguments = 3'b001;
      VEC_FMA, VEC_SELECT: arguments = 3'b111;
      default: arguments = 3'b011;
    endcase
    sources = is_reduce ? 3'b001
        : (is_gather ? 3'b110 : is_scatter ? 3'b111 : arguments) & ~{|(packet.flags & FLAG_IMM_C), |(packet.flags & FLAG_IMM_B), |(packet.flags & FLAG_IMM_A)};
    touched = is_gemm ? {(packet.flags & FLAG_BIAS) != 0, 3'b111} : {sources, 1'b1} | {2'b0, is_gather, 1'b0};

    wrong = ERROR_NONE;
    for (int i = 0; i < 4; i++) begin
      logic [ 1:0] mask;
      logic [31:0] low;
      mask = 2'(convert_pkg::width_of(packet.kind[i]) - 1);
      low = packet.addr[i][31:0] | packet.stride[i][0] | packet.stride[i][1] | packet.stride[i][2] | packet.stride[i][3];
      if (touched[i] && (low[1:0] & mask) != 0) wrong = ERROR_ALIGNMENT;
      if (touched[i] && packet.kind[i] > TYPE_LAST) wrong = ERROR_OPCODE;
      if (packet.size[i] == 0) wrong = ERROR_SIZE;
    end
    width = 32'(convert_pkg::width_of(packet.kind[1]));
    if (is_gemm) begin
      if (packet.stride[1][3] != width && packet.stride[1][1] != width) wrong = ERROR_STRIDE;
      if (packet.stride[2][3] != width && packet.stride[2][2] != width) wrong = ERROR_STRIDE;
      if (packet.kind[1] != packet.kind[2]) wrong = ERROR_OPCODE;
      if (touched[3]) begin
        width = 32'(convert_pkg::width_of(packet.kind[3]));
        if (packet.stride[3][1] == 0 ? packet.stride[3][2] != width : packet.stride[3][1] != width || packet.stride[3][2] != 0)
          wrong = ERROR_STRIDE;
        if (packet.kind[1] == TYPE_I8 ? packet.kind[3] != TYPE_I32 : packet.kind[3] > TYPE_F16) wrong = ERROR_OPCODE;
      end
      if (packet.kind[1] == TYPE_BF16 || packet.kind[1] == TYPE_F32 ? packet.kind[0] > TYPE_F16
          : packet.kind[1] != TYPE_I8 || packet.kind[0] != TYPE_I32)
        wrong = ERROR_OPCODE;
    end else if (packet.op > VEC_LAST || (is_gather && packet.op != VEC_MOV) ||
                 ((is_reduce || (is_scatter && packet.op != VEC_MOV)) && (arguments != 3'b011 || packet.op >= VEC_DIV)))
      wrong = ERROR_OPCODE;
    if (packet.opcode > OP_LAST) wrong = ERROR_OPCODE;
    if (is_sync) wrong = ERROR_NONE;
  end

  always_ff @(posedge clk) begin
    start_vector <= 0;
    start_gemm <= 0;
    irq <= 0;
    case (state)
      WAIT:
      if (fetch == READY) begin
        packet <= next;
        state  <= CHECK;
      end
      CHECK:
      if (bus_error) begin
        error_code <= ERROR_BUS;
        state <= STOPPED;
      end else if (wrong != ERROR_NONE) begin
        error_code <= wrong;
        state <= STOPPED;
      end else begin
        start_vector <= !is_sync && !is_gemm;
        start_gemm <= is_gemm;
        state <= is_sync ? DRAIN : RUN;
      end
      RUN: if (unit_done) state <= DRAIN;
      DRAIN:
      if (stored) begin
        state <= WAIT;
        if (bus_error) begin
          error_code <= ERROR_BUS;
          state <= STOPPED;
        end else if (check_failed && !is_sync && !is_gemm) begin
          error_code <= ERROR_CHECK;
          state <= STOPPED;
        end else begin
          head <= head + (is_sync ? 1 : 2);
          retired <= retired + 1;
          irq <= (packet.flags & FLAG_IRQ) != 0;
        end
      end
      default: ;
    endcase
    case (fetch)
      ASK: if (rd_valid && rd_ready) fetch <= GET;
      GET:
      if (rsp_valid) begin
        if (second) next.stride <= rsp_data;
        else next[8*LINE_BYTES-1:0] <= rsp_data;
        second  <= !second && rsp_data[7:0] != OP_SYNC;
        fetch   <= second || rsp_data[7:0] == OP_SYNC ? READY : ASK;
        fetched <= fetched + 1;
      end
      default: if (state == WAIT) fetch <= ASK;
    endcase
    if (rst) begin
      state <= WAIT;
      fetch <= ASK;
      second <= 0;
      fetched <= 0;
      head <= 0;
      retired <= 0;
      error_code <= ERROR_NONE;
    end
  end
endmodule
