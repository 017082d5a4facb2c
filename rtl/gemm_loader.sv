// Fills the operand lanes: for every block and chunk of k first rows of A, then columns of B, in the order in which
// gemm_unit uses them; before a block's first chunk, its part of the bias. An input is read along k (elements of a lane are neighbours in memory) or across lanes (elements of
// one k are); other layouts are copied first by the driver.
module gemm_loader
  import npu_pkg::*;
  import packet_pkg::*;
#(
    localparam int LINE_ADDR = ADDR_WIDTH - $clog2(LINE_BYTES),
    localparam int ROWS = LANES * TILE_ROWS,
    localparam int COLUMNS = LANES * TILE_COLUMNS,
    localparam int KW = $clog2(CHUNK)
) (
    input logic clk,
    input logic rst,

    input logic start,
    input packet_t packet,
    input logic [1:0] size,  // elements have 1 << size bytes

    output logic [1:0] full,          // halves that hold a chunk
    input  logic       release_half,  // half `released` may be filled again
    input  logic       released,

    input  logic          read,                // a and b at step `read_step`, one cycle later
    input  logic          read_half,
    input  logic [KW-1:0] read_step,
    output logic [  31:0] a        [   ROWS],
    output logic [  31:0] b        [COLUMNS],
    output logic [  31:0] c        [ 2*ROWS],  // bias, by the half of a block's first chunk

    output logic                    rd_valid,
    input  logic                    rd_ready,
    output logic [   LINE_ADDR-1:0] rd_line,
    input  logic                    rsp_valid,
    input  logic [8*LINE_BYTES-1:0] rsp_data
);
  localparam int SHIFT = $clog2(LINE_BYTES), SIDE = ROWS, LINES = 4, MW = $clog2(2 * READS);
  localparam int IW = $clog2(CHUNK > SIDE ? CHUNK : SIDE), SW = $clog2(SIDE);
  localparam int BYTES = $clog2(2 * CHUNK) + SHIFT;  // enough for a position in a lane

  typedef struct packed {
    logic half;
    logic bias;
    logic operand;  // 0: A, 1: B
    logic along;  // along k: `index` is the lane; otherwise it is the step of k
    logic [IW-1:0] index;
    logic [1:0] part;  // line of the run of neighbours
    logic [SHIFT-1:0] offset;
    logic last;  // of the chunk
  } meta_t;

  function automatic logic [ADDR_WIDTH-1:0] extend(logic [31:0] value);
    return ADDR_WIDTH'($signed(value));
  endfunction

  logic has_bias, bias, c_across;
  logic active, half, operand, along, accepted, part_last, index_last, chunk_end, n_end, m_end;
  logic [1:0] filling, part;
  logic [31:0] batch, m, n, k, m_left, n_left, k_left;
  logic [IW:0] lanes, steps, run;
  logic [IW-1:0] index;
  logic [2:0] width, c_width;
  logic [KW:0] chunk;
  logic [ADDR_WIDTH-1:0] a_batch, a_m, a_k, b_batch, b_n, b_k, at, here, next_a_k, next_b_k;
  logic [ADDR_WIDTH-1:0] c_batch, c_m, c_n;
  logic [8:0] end_byte;

  assign width = 3'd1 << size;
  assign chunk = size == 2 ? (KW + 1)'(CHUNK / 2) : (KW + 1)'(CHUNK);
  assign m_left = packet.size[1] - m;
  assign n_left = packet.size[2] - n;
  assign k_left = packet.size[3] - k;
  assign chunk_end = k_left <= 32'(chunk);
  assign n_end = n_left <= COLUMNS;
  assign m_end = m_left <= ROWS;
  assign along = packet.stride[operand?2 : 1][3] == 32'(width);
  assign lanes = (bias ? c_across : operand) ? (n_left > COLUMNS ? (IW + 1)'(COLUMNS) : (IW + 1)'(n_left))
      : m_left > ROWS ? (IW + 1)'(ROWS) : (IW + 1)'(m_left);
  assign steps = k_left > 32'(chunk) ? chunk : (IW + 1)'(k_left);
  assign has_bias = (packet.flags & FLAG_BIAS) != 0;
  assign c_across = packet.stride[3][2] != 0;  // along the columns of the result; otherwise along its rows
  assign c_width = convert_pkg::width_of(packet.kind[3]);
  assign here = bias ? c_n : at;
  assign run = !bias && along ? steps : lanes;
  assign end_byte = 9'(here[SHIFT-1:0]) + 9'(run) * 9'(bias ? c_width : width) - 1;
  assign part_last = part == 2'(end_byte >> SHIFT);
  assign index_last = {1'b0, index} == (along ? lanes : steps) - 1;
  assign rd_valid = active && !filling[half];
  assign rd_line = here[ADDR_WIDTH-1:SHIFT] + LINE_ADDR'(part);
  assign accepted = rd_valid && rd_ready;
  assign next_a_k = a_k + extend(packet.stride[1][3]) * ADDR_WIDTH'(chunk);
  assign next_b_k = b_k + extend(packet.stride[2][3]) * ADDR_WIDTH'(chunk);

  meta_t queue[2*READS];
  meta_t got;
  logic [MW-1:0] queue_in, queue_out;
  logic mine;
  assign got  = queue[queue_out];
  assign mine = rsp_valid && queue_in != queue_out;

  // ---- the lanes ----
  logic [31:0] q[2][SIDE];
  logic [SHIFT-1:0] offset[2][2][SIDE];  // of a lane that was read along k: where its first element lies in a line
  logic [BYTES-1:0] element_byte;
  assign element_byte = BYTES'(got.index) * BYTES'(width);
  for (genvar o = 0; o < 2; o++) begin : g_operand
    for (genvar l = 0; l < SIDE; l++) begin : g_lane
      logic [BYTES-1:0] place;
      logic [SHIFT+1:0] from;
      logic [31:0] element;
      assign place = BYTES'(read_step) * BYTES'(width) + BYTES'(offset[read_half][o][l]);
      assign from = {2'b0, got.offset} + (SHIFT + 2)'(l) * (SHIFT + 2)'(width);
      assign element = rsp_data[{from[SHIFT-1:2], 5'b0}+:32] >> {from[1:0], 3'b0};
      operand_lane #(
          .LINES(LINES)
      ) u_lane (
          .clk,
          .whole(mine && !got.bias && got.operand == o && got.along && got.index == l),
          .one(mine && !got.bias && got.operand == o && !got.along && from[SHIFT+1:SHIFT] == got.part),
          .size,
          .wline({got.half, got.along ? got.part : element_byte[SHIFT+1:SHIFT]}),
          .wbyte(element_byte[SHIFT-1:0]),
          .wdata(rsp_data),
          .welement(element),
          .re(read),
          .rline({read_half, place[SHIFT+1:SHIFT]}),
          .rbyte(place[SHIFT-1:0]),
          .q(q[o][l])
      );
    end
  end
  assign a = q[0];
  assign b = q[1];

  always_ff @(posedge clk) begin
    if (start) begin
      active <= 1;
      bias <= has_bias;
      c_batch <= packet.addr[3][ADDR_WIDTH-1:0];
      c_m <= packet.addr[3][ADDR_WIDTH-1:0];
      c_n <= packet.addr[3][ADDR_WIDTH-1:0];
      filling <= 0;
      full <= 0;
      half <= 0;
      operand <= 0;
      index <= 0;
      part <= 0;
      {batch, m, n, k} <= 0;
      a_batch <= packet.addr[1][ADDR_WIDTH-1:0];
      a_m <= packet.addr[1][ADDR_WIDTH-1:0];
      a_k <= packet.addr[1][ADDR_WIDTH-1:0];
      b_batch <= packet.addr[2][ADDR_WIDTH-1:0];
      b_n <= packet.addr[2][ADDR_WIDTH-1:0];
      b_k <= packet.addr[2][ADDR_WIDTH-1:0];
      at <= packet.addr[1][ADDR_WIDTH-1:0];
    end
    if (release_half) begin
      filling[released] <= 0;
      full[released] <= 0;
    end
    if (accepted) begin
      queue[queue_in] <= '{
          half,
          bias,
          operand,
          along,
          index,
          part,
          here[SHIFT-1:0],
          !bias && part_last && index_last && operand
      };
      queue_in <= queue_in + 1;
      part <= part_last ? 0 : part + 1;
      if (part_last && bias) bias <= 0;
      else if (part_last) begin
        index <= index_last ? 0 : index + 1;
        at <= at + extend(packet.stride[operand?2 : 1][along?(operand?2 : 1) : 3]);
        if (index_last) begin
          operand <= !operand;
          at <= b_k;
          if (operand) begin  // the chunk is asked for: on to the next
            filling[half] <= 1;
            half <= !half;
            at <= next_a_k;
            k <= chunk_end ? 0 : k + 32'(chunk);
            a_k <= next_a_k;
            b_k <= next_b_k;
            if (chunk_end) begin
              bias <= has_bias;
              c_n <= c_n + extend(packet.stride[3][2]) * ADDR_WIDTH'(COLUMNS);
              n <= n_end ? 0 : n + COLUMNS;
              at <= a_m;
              a_k <= a_m;
              b_n <= b_n + extend(packet.stride[2][2]) * ADDR_WIDTH'(COLUMNS);
              b_k <= b_n + extend(packet.stride[2][2]) * ADDR_WIDTH'(COLUMNS);
              if (n_end) begin
                m   <= m_end ? 0 : m + ROWS;
                a_m <= a_m + extend(packet.stride[1][1]) * ADDR_WIDTH'(ROWS);
                a_k <= a_m + extend(packet.stride[1][1]) * ADDR_WIDTH'(ROWS);
                at  <= a_m + extend(packet.stride[1][1]) * ADDR_WIDTH'(ROWS);
                b_n <= b_batch;
                b_k <= b_batch;
                c_m <= c_m + extend(packet.stride[3][1]) * ADDR_WIDTH'(ROWS);
                c_n <= c_m + extend(packet.stride[3][1]) * ADDR_WIDTH'(ROWS);
                if (m_end) begin
                  batch <= batch + 1;
                  active <= batch != packet.size[0] - 1;
                  a_batch <= a_batch + extend(packet.stride[1][0]);
                  a_m <= a_batch + extend(packet.stride[1][0]);
                  a_k <= a_batch + extend(packet.stride[1][0]);
                  at <= a_batch + extend(packet.stride[1][0]);
                  b_batch <= b_batch + extend(packet.stride[2][0]);
                  b_n <= b_batch + extend(packet.stride[2][0]);
                  b_k <= b_batch + extend(packet.stride[2][0]);
                  c_batch <= c_batch + extend(packet.stride[3][0]);
                  c_m <= c_batch + extend(packet.stride[3][0]);
                  c_n <= c_batch + extend(packet.stride[3][0]);
                end
              end
            end
          end
        end
      end
    end
    if (mine) begin
      queue_out <= queue_out + 1;
      if (got.last) full[got.half] <= 1;
      if (got.bias) begin
        for (int l = 0; l < SIDE; l++) begin
          logic [SHIFT+1:0] place;
          logic [31:0] element;
          place   = {2'b0, got.offset} + (SHIFT + 2)'(l) * (SHIFT + 2)'(c_width);
          element = rsp_data[{place[SHIFT-1:2], 5'b0}+:32] >> {place[1:0], 3'b0};
          if (place[SHIFT+1:SHIFT] == got.part) c[{got.half, SW'(l)}] <= convert_pkg::load(packet.kind[3], element);
        end
      end else if (!got.along) begin
        for (int l = 0; l < SIDE; l++) offset[got.half][got.operand][l] <= 0;
      end else offset[got.half][got.operand][got.index[$clog2(SIDE)-1:0]] <= got.offset;
    end
    if (rst) begin
      active <= 0;
      queue_in <= 0;
      queue_out <= 0;
      full <= 0;
    end
  end
endmodule
