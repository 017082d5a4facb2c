// VECTOR, REDUCE, GATHER and SCATTER: loads up to three operands by vectors, computes, stores. Requests run ahead of
// answers: `ask` walks the sources and asks for lines, `take` puts the answers into lanes, results wait in a small queue
// for the store. For GATHER and SCATTER what is loaded by vectors are indices, mask and values; lane_access then goes
// through the lanes.
module vector_unit
  import npu_pkg::*;
  import packet_pkg::*;
#(
    localparam int LINE_ADDR = ADDR_WIDTH - $clog2(LINE_BYTES)
) (
    input logic clk,
    input logic rst,

    input  logic           start,           // for one cycle; the packet stays until done
    input  packet_t        packet,
    input  logic    [ 2:0] sources,         // which of a, b, c are read from memory
    output logic           done,
    output logic           check_failed,    // a CHECK met an element other than 0: the first one's number
    output logic    [31:0] check_position,
    input  logic           bus_idle,

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

  logic active, reduce, slow, gather, scatter, one_by_one;
  assign reduce = packet.opcode == OP_REDUCE;
  assign gather = packet.opcode == OP_GATHER;
  assign scatter = packet.opcode == OP_SCATTER;
  assign slow = packet.op >= VEC_DIV && !reduce;
  assign one_by_one = slow || gather || scatter;  // vectors: the next is asked for when this one is done

  // Of lane_access, which works on `lane` at address `lane_at`.
  logic lane_ask, lane_compute, lane_store_valid, lane_done, stored;
  logic [LW-1:0] lane;
  logic [ADDR_WIDTH-1:0] lane_at, from, out_addr;
  logic [31:0] lane_value, column, position;

  // ---- ask ----
  logic running, walking, mid, accepted, room, part_last, source_last, step_in, row_blocked;
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
  assign room = mid || (one_by_one ? inflight == 0 : inflight < (QW + 1)'(RESULTS) && !row_blocked);
  assign walking = running && sources != 0 && room;
  assign rd_valid = walking || lane_ask;
  assign rd_line = lane_ask ? lane_at[ADDR_WIDTH-1:SHIFT] : at[ADDR_WIDTH-1:SHIFT] + LINE_ADDR'(together && part[0]);
  assign accepted = walking && rd_ready;
  // Without a source in memory (a fill) a vector needs no answer.
  logic bare;
  assign bare = running && sources == 0 && room;
  assign step_in = bare || (accepted && part_last && source_last);

  meta_t queue[2*READS];
  meta_t asked, asked_lane, got;
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
  // An element of lane_access: into its lane, or, as what memory held before, into lane 0 of lanes[3].
  assign asked_lane = '{
          scatter ? 2'd3 : 2'd0,
          1'b0,
          1'b0,
          scatter ? LW'(0) : lane,
          lane_at[SHIFT-1:0],
          1'b0,
          1'b0,
          CW'(0)
      };
  assign got = queue[queue_out];

  // ---- take ----
  logic [31:0] lanes[4][LANES];
  logic full, full_row_last;  // `lanes` holds a vector
  logic [CW-1:0] full_count;

  always_ff @(posedge clk)
    if (rsp_valid && active) begin
      logic [31:0] next  [LANES];
      logic [ 3:0] kind;
      logic [ 2:0] bytes;
      kind  = packet.kind[2'(got.source+1)];
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
    end else if (full && gather) lanes[0] <= '{default: 0};  // where the mask is 0

  // ---- compute ----
  logic go, fresh, push, folding;
  logic [1:0] fold;  // steps of the tree: lanes 8, 4, 2, 1 apart
  logic [CW-1:0] push_count;
  logic [31:0] alu_a[LANES], alu_b[LANES], alu_c[LANES], result[LANES];

  assign go = (full && !one_by_one) || folding || (lane_done && gather) || lane_compute;
  always_comb
    for (int i = 0; i < LANES; i++) begin
      alu_a[i] = (packet.flags & FLAG_IMM_A) != 0 ? packet.imm : lanes[0][i];
      alu_b[i] = (packet.flags & FLAG_IMM_B) != 0 ? packet.imm : lanes[1][i];
      alu_c[i] = (packet.flags & FLAG_IMM_C) != 0 ? packet.imm : lanes[2][i];
      if (reduce) begin
        alu_a[i] = fresh ? packet.imm : result[i];
        alu_b[i] = folding ? result[LW'(i)+(LW'(LANES/2)>>fold)] : lanes[0][i];
      end
      if (packet.op == VEC_IOTA) alu_b[i] = column + i;
      if (gather) alu_a[i] = lanes[0][i];
      if (scatter) begin
        alu_a[i] = lanes[3][0];
        alu_b[i] = lane_value;
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

  // ---- lanes of GATHER and SCATTER ----
  logic [31:0] index, mask;
  assign lane_value = (packet.flags & FLAG_IMM_A) != 0 ? packet.imm : lanes[0][lane];
  assign index = (packet.flags & FLAG_IMM_B) != 0 ? packet.imm : lanes[1][lane];
  assign mask = (packet.flags & FLAG_IMM_C) != 0 ? packet.imm : lanes[2][lane];
  lane_access u_access (
      .clk,
      .rst,
      .start(full && (gather || scatter)),
      .scatter,
      .update(scatter && packet.op != VEC_MOV),
      .base(scatter ? out_addr : from),
      .stride(packet.stride[scatter?0 : 1][3]),
      .width(convert_pkg::width_of(packet.kind[scatter?0 : 1])),
      .count(full_count),
      .index,
      .mask,
      .lane,
      .at(lane_at),
      .ask(lane_ask),
      .asked(rd_ready),
      .pending(queue_in != queue_out),
      .bus_idle,
      .compute(lane_compute),
      .store(lane_store_valid),
      .stored,
      .done(lane_done)
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
  logic [31:0] stored_lanes[LANES];
  assign pop = stored && !scatter;
  always_comb begin
    stored_lanes = results[result_out[QW-1:0]];
    if (scatter) stored_lanes[0] = packet.op == VEC_MOV ? lane_value : result[0];
  end
  walker u_result (
      .clk,
      .start,
      .step(pop || (scatter && lane_done)),
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
      .valid (scatter ? lane_store_valid : result_in != result_out),
      .ready (stored),
      .data  (stored_lanes),
      .count (scatter ? CW'(1) : result_count[result_out[QW-1:0]]),
      .kind  (packet.kind[0]),
      .addr  (scatter ? lane_at : out_addr),
      .stride(reduce || scatter ? 32'(convert_pkg::width_of(packet.kind[0])) : packet.stride[0][3]),
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
      check_failed <= 0;
      column <= 0;
      position <= 0;
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
    if (lane_ask && rd_ready) begin
      queue[queue_in] <= asked_lane;
      queue_in <= queue_in + 1;
    end
    if (step_in) begin
      from <= in_addr[0];
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
      push <= !reduce && !one_by_one;
      column <= full_row_last ? 0 : column + LANES;
      position <= position + 32'(full_count);
      if (packet.opcode == OP_VECTOR && packet.op == VEC_CHECK && !check_failed)
        for (int i = LANES - 1; i >= 0; i--)
        if (i < int'(full_count) && alu_a[i] != 0) begin
          check_failed   <= 1;
          check_position <= position + i;
        end
      push_count <= full_count;
      folding <= reduce && full_row_last;
      fold <= 0;
    end
    if (slow_done || (lane_done && gather)) push <= 1;
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
        - (QW + 1)'((full && reduce && !full_row_last) || (lane_done && scatter));
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
