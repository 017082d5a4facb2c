// VECTOR and REDUCE: loads up to three operands by vectors, computes, stores. Requests run ahead of answers: `ask` walks
// the sources and asks for lines, `take` puts the answers into lanes, results wait in a small queue for the store.
module vector_unit
  import npu_pkg::*;
  import packet_pkg::*;
#(
    localparam int LINE_ADDR = ADDR_WIDTH - $clog2(LINE_BYTES)
) (
    input logic clk,
    input logic rst,

    input  logic          start,    // for one cycle; the packet stays until done
    input  packet_t       packet,
    input  logic    [2:0] sources,  // which of a, b, c are read from memory
    output logic          done,

    output logic                    rd_valid,
    input  logic                    rd_ready,
    output logic [   LINE_ADDR-1:0] rd_line,
    input  logic                    rsp_valid,
    input  logic [8*LINE_BYTES-1:0] rsp_data,

    output logic                    wr_valid,
    input  logic                    wr_ready,
    output logic [   LINE_ADDR-1:0] wr_line,
    output logic [8*LINE_BYTES-1:0] wr_data,
    output logic [  LINE_BYTES-1:0] wr_strb
);
  localparam int SHIFT = $clog2(LINE_BYTES), LW = $clog2(LANES), CW = $clog2(LANES + 1), QW = $clog2(RESULTS);
  localparam int MW = $clog2(2 * READS);

  typedef struct packed {
    logic [1:0]       source;
    logic             together;  // neighbours: `part` is the line
    logic             spread;    // one element for all lanes; otherwise `part` is the lane
    logic [LW-1:0]    part;
    logic [SHIFT-1:0] offset;
    logic             complete;  // the vector is complete with this answer
    logic             row_last;
    logic [CW-1:0]    count;
  } meta_t;

  logic active, reduce, slow;
  assign reduce = packet.opcode == OP_REDUCE;
  assign slow   = packet.op >= VEC_DIV && !reduce;

  // ---- ask ----
  logic running, mid, accepted, room, part_last, source_last, step_in, row_blocked;
  logic [1:0] source, first_source;
  logic [LW-1:0] part;
  logic [ADDR_WIDTH-1:0] hop, at;
  logic [ADDR_WIDTH-1:0] in_addr[3];
  logic [CW-1:0] in_count[3];
  logic [2:0] in_row_last, in_last;
  logic [2:0] width;
  logic together, spread;
  logic [SHIFT:0] end_byte;
  logic [QW:0] inflight;

  for (genvar s = 0; s < 3; s++) begin : g_source
    walker u_walker (
        .clk,
        .start,
        .step(step_in),
        .base(packet.addr[s+1][ADDR_WIDTH-1:0]),
        .size(packet.size),
        .stride(packet.stride[s+1]),
        .addr(in_addr[s]),
        .count(in_count[s]),
        .row_last(in_row_last[s]),
        .last(in_last[s])
    );
  end

  assign first_source = sources[0] ? 0 : sources[1] ? 1 : 2;
  assign source_last = (sources >> source) <= 1;
  assign width = convert_pkg::width_of(packet.kind[source+1]);
  assign together = packet.stride[source+1][3] == 32'(width);
  assign spread = packet.stride[source+1][3] == 0;
  assign end_byte = {1'b0, in_addr[source][SHIFT-1:0]} + (SHIFT + 1)'(in_count[0]) * (SHIFT + 1)'(width) - 1;
  assign at = in_addr[source] + (together ? 0 : hop);
  assign part_last = spread || (together ? part[0] == end_byte[SHIFT] : part == LW'(in_count[0] - 1));
  assign room = mid || (slow ? inflight == 0 : inflight < (QW + 1)'(RESULTS) && !row_blocked);
  assign rd_valid = running && sources != 0 && room;
  assign rd_line = at[ADDR_WIDTH-1:SHIFT] + LINE_ADDR'(together && part[0]);
  assign accepted = rd_valid && rd_ready;
  // Without a source in memory (a fill) a vector needs no answer.
  logic bare;
  assign bare = running && sources == 0 && room;
  assign step_in = bare || (accepted && part_last && source_last);

  meta_t queue[2*READS];
  meta_t asked, got;
  logic [MW-1:0] queue_in, queue_out;
  assign asked = '{
          source,
          together,
          spread,
          part,
          at[SHIFT-1:0],
          part_last && source_last,
          in_row_last[0],
          in_count[0]
      };
  assign got = queue[queue_out];

  // ---- take ----
  logic [31:0] lanes[3][LANES];
  logic full, full_row_last;  // `lanes` holds a vector
  logic [CW-1:0] full_count;

  always_ff @(posedge clk)
    if (rsp_valid && active) begin
      logic [31:0] next  [LANES];
      logic [ 3:0] kind;
      logic [ 2:0] bytes;
      kind  = packet.kind[got.source+1];
      bytes = convert_pkg::width_of(kind);
      next  = lanes[got.source];
      for (int i = 0; i < LANES; i++) begin
        logic [SHIFT:0] place;
        logic [31:0] word;
        place = {1'b0, got.offset} + (got.together ? (SHIFT + 1)'(i) * (SHIFT + 1)'(bytes) : 0);
        word  = rsp_data[{place[SHIFT-1:2], 5'b0}+:32] >> {place[1:0], 3'b0};
        if (got.together ? place[SHIFT] == got.part[0] : got.spread || got.part == LW'(i))
          next[i] = convert_pkg::load(kind, word);
      end
      lanes[got.source] <= next;
    end

  // ---- compute ----
  logic go, fresh, push, folding;
  logic [1:0] fold;  // steps of the tree: lanes 8, 4, 2, 1 apart
  logic [CW-1:0] push_count;
  logic [31:0] alu_a[LANES], alu_b[LANES], alu_c[LANES], result[LANES];

  assign go = (full && !slow) || folding;
  always_comb
    for (int i = 0; i < LANES; i++) begin
      alu_a[i] = (packet.flags & FLAG_IMM_A) != 0 ? packet.imm : lanes[0][i];
      alu_b[i] = (packet.flags & FLAG_IMM_B) != 0 ? packet.imm : lanes[1][i];
      alu_c[i] = (packet.flags & FLAG_IMM_C) != 0 ? packet.imm : lanes[2][i];
      if (reduce) begin
        alu_a[i] = fresh ? packet.imm : result[i];
        alu_b[i] = folding ? result[LW'(i)+(LW'(LANES/2)>>fold)] : lanes[0][i];
      end
    end
  vector_alu u_alu (
      .clk,
      .go,
      .op(packet.op),
      .keep_from(reduce && !folding ? full_count : CW'(LANES)),
      .a(alu_a),
      .b(alu_b),
      .c(alu_c),
      .result
  );

  // Division and roots take their time: one vector at a time, then.
  logic slow_done;
  logic [31:0] slow_result[LANES];
  divider u_divider (
      .clk,
      .rst,
      .go(full && slow),
      .root(packet.op == VEC_SQRT),
      .a(alu_a),
      .b(alu_b),
      .done(slow_done),
      .result(slow_result)
  );

  // ---- store ----
  logic [31:0] results[RESULTS][LANES];
  logic [CW-1:0] result_count[RESULTS];
  logic [QW:0] result_in, result_out;
  logic pop;
  logic [ADDR_WIDTH-1:0] out_addr;
  walker u_result (
      .clk,
      .start,
      .step(pop),
      .base(packet.addr[0][ADDR_WIDTH-1:0]),
      .size(reduce ? {32'd1, packet.size[2:0]} : packet.size),
      .stride(packet.stride[0]),
      .addr(out_addr),
      .count(),
      .row_last(),
      .last()
  );
  lane_store u_store (
      .clk,
      .rst,
      .valid (result_in != result_out),
      .ready (pop),
      .data  (results[result_out[QW-1:0]]),
      .count (result_count[result_out[QW-1:0]]),
      .kind  (packet.kind[0]),
      .addr  (out_addr),
      .stride(reduce ? 32'(convert_pkg::width_of(packet.kind[0])) : packet.stride[0][3]),
      .wr_valid,
      .wr_ready,
      .wr_line,
      .wr_data,
      .wr_strb
  );

  assign done = active && !running && inflight == 0;

  always_ff @(posedge clk) begin
    full <= 0;
    push <= 0;
    if (start) begin
      active <= 1;
      running <= 1;
      mid <= 0;
      source <= first_source;
      part <= 0;
      hop <= 0;
      fresh <= 1;
      row_blocked <= 0;
    end
    if (done) active <= 0;
    if (accepted) begin
      queue[queue_in] <= asked;
      queue_in <= queue_in + 1;
      mid <= !(part_last && source_last);
      part <= part_last ? 0 : part + 1;
      hop <= part_last ? 0 : hop + ADDR_WIDTH'($signed(packet.stride[source+1][3]));
      if (part_last) source <= source_last ? first_source : sources[1] && source == 0 ? 1 : 2;
    end
    if (step_in) begin
      running <= !in_last[0];
      if (reduce && in_row_last[0]) row_blocked <= 1;  // the tree has the lanes to itself
    end
    if (rsp_valid && active) queue_out <= queue_out + 1;
    if ((rsp_valid && active && got.complete) || bare) begin
      full <= 1;
      full_count <= bare ? in_count[0] : got.count;
      full_row_last <= bare ? in_row_last[0] : got.row_last;
    end
    if (full) begin
      fresh <= 0;
      push <= !reduce && !slow;
      push_count <= full_count;
      folding <= reduce && full_row_last;
      fold <= 0;
    end
    if (slow_done) push <= 1;
    if (folding) begin
      fold <= fold + 1;
      if (&fold) begin
        folding <= 0;
        fresh <= 1;
        row_blocked <= 0;
        push <= 1;
        push_count <= 1;
      end
    end
    if (push) begin
      results[result_in[QW-1:0]] <= slow ? slow_result : result;
      result_count[result_in[QW-1:0]] <= push_count;
      result_in <= result_in + 1;
    end
    if (pop) result_out <= result_out + 1;
    inflight <= inflight + (QW + 1)'(bare || (accepted && !mid)) - (QW + 1)'(pop)
        - (QW + 1)'(full && reduce && !full_row_last);
    if (rst) begin
      active <= 0;
      running <= 0;
      folding <= 0;
      push <= 0;
      full <= 0;
      inflight <= 0;
      queue_in <= 0;
      queue_out <= 0;
      result_in <= 0;
      result_out <= 0;
    end
  end
endmodule
