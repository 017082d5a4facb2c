// GEMM: A * B for a batch of matrices, plus a bias, and not below 0 if asked for; by blocks of BLOCK x BLOCK results. `gemm_loader` fills one half of the operand
// lanes with the next CHUNK steps of k while the matrix engine works on the other; a finished block is stored row by row.
module gemm_unit
  import npu_pkg::*;
  import packet_pkg::*;
#(
    localparam int LINE_ADDR = ADDR_WIDTH - $clog2(LINE_BYTES)
) (
    input logic clk,
    input logic rst,

    input  logic    start,   // for one cycle; the packet stays until done
    input  packet_t packet,
    output logic    done,
    output logic    busy,    // the matrix engine multiplies in this cycle

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
  localparam int ROWS = LANES * TILE_ROWS, COLUMNS = LANES * TILE_COLUMNS, TW = $clog2(TILE_ROWS * TILE_COLUMNS);
  localparam int LW = $clog2(LANES), CW = $clog2(LANES + 1), KW = $clog2(CHUNK);

  function automatic logic [ADDR_WIDTH-1:0] extend(logic [31:0] value);
    return ADDR_WIDTH'($signed(value));
  endfunction

  logic narrow, wide;
  logic [ 1:0] size;  // of an input's elements, as a power of two
  logic [KW:0] chunk;
  assign narrow = packet.kind[1] == TYPE_I8;
  assign wide   = packet.kind[1] == TYPE_F32;
  assign size   = narrow ? 2'd0 : wide ? 2'd2 : 2'd1;
  assign chunk  = wide ? (KW + 1)'(CHUNK / 2) : (KW + 1)'(CHUNK);

  // ---- where the computation is ----
  typedef enum logic [1:0] {
    IDLE,
    RUN,
    DRAIN,
    STORE
  } state_t;
  state_t state;
  logic   drained;
  logic [31:0] batch, m, n, k;  // of the block and chunk
  logic [31:0] m_left, n_left, k_left;
  logic half, chunk_last;
  logic [1:0] full;  // halves that hold a chunk
  logic [KW-1:0] step;
  logic [TW-1:0] tile;
  logic row_tile, column_tile, two_rows, two_columns, tile_last, step_last, pass_last, release_half;
  logic [3:0] pass;

  assign m_left = packet.size[1] - m;
  assign n_left = packet.size[2] - n;
  assign k_left = packet.size[3] - k;
  assign two_rows = m_left > LANES;
  assign two_columns = n_left > LANES;
  assign chunk_last = k_left <= 32'(chunk);
  assign row_tile = tile[1];
  assign column_tile = tile[0];
  assign tile_last = row_tile == two_rows && column_tile == two_columns;
  assign step_last = step == KW'((chunk_last ? k_left : 32'(chunk)) - 1);
  assign pass_last = !wide || pass == 4'(PASSES - 1);

  logic read;
  logic [31:0] a_lanes[ROWS], b_lanes[COLUMNS], c_lanes[2*ROWS], bias[ROWS];
  assign read = state == RUN && full[half];
  assign release_half = read && tile_last && step_last && pass_last;

  gemm_loader u_loader (
      .clk,
      .rst,
      .start,
      .packet,
      .size,
      .full,
      .release_half,
      .released(half),
      .read(read && tile == 0 && pass == 0),  // the lanes keep what they read
      .read_half(half),
      .read_step(step),
      .a(a_lanes),
      .b(b_lanes),
      .c(c_lanes),
      .rd_valid,
      .rd_ready,
      .rd_line,
      .rsp_valid,
      .rsp_data
  );

  // ---- multiply ----
  logic [31:0] a[LANES], b[LANES];
  logic clear;
  logic [3:0] busy_pass;
  logic [LANES-1:0] gap;
  logic [TW-1:0] busy_tile;
  for (genvar i = 0; i < LANES; i++) begin : g_select
    assign a[i]   = a_lanes[{busy_tile[1], LW'(i)}];
    assign b[i]   = b_lanes[{busy_tile[0], LW'(i)}];
    assign gap[i] = (packet.flags & FLAG_GAPS) != 0 && (wide ? &b[i] : &b[i][15:0]);
  end

  logic [31:0] row_values[LANES];
  logic [$clog2(ROWS)-1:0] row;
  logic column;
  matrix_engine u_engine (
      .clk,
      .en(busy),
      .clear,
      .narrow,
      .wide,
      .pass(busy_pass),
      .gap,
      .tile(busy_tile),
      .a,
      .b,
      .out_tile({row[LW], column}),
      .out_row(row[LW-1:0]),
      .out(row_values)
  );

  // ---- store ----
  logic stored, row_end, block_end;
  logic [31:0] finished[LANES];
  always_comb
    for (int j = 0; j < LANES; j++) begin
      logic [31:0] value, addend;
      value  = row_values[j];
      addend = bias[packet.stride[3][2]!=0?{column, LW'(j)} : row];
      if (state == STORE && (packet.flags & FLAG_BIAS) != 0)
        value = narrow ? value + addend : fp_pkg::add(value, addend);
      if ((packet.flags & FLAG_RELU) != 0 && (narrow ? value[31] : !fp_pkg::is_nan(value) && fp_pkg::less(value, 0)))
        value = 0;
      finished[j] = value;
    end

  logic [ADDR_WIDTH-1:0] c_batch, c_m, c_n, c_row, c_at, m_hop, n_hop, n_half;
  logic [CW-1:0] count;
  assign m_hop = extend(packet.stride[0][1]) * ADDR_WIDTH'(ROWS);
  assign n_hop = extend(packet.stride[0][2]) * ADDR_WIDTH'(COLUMNS);
  assign n_half = extend(packet.stride[0][2]) * ADDR_WIDTH'(LANES);
  assign c_at = column ? c_row + n_half : c_row;
  assign count = column ? (n_left >= COLUMNS ? CW'(LANES) : CW'(n_left - LANES))
      : two_columns || n_left == LANES ? CW'(LANES) : CW'(n_left);
  assign row_end = column == two_columns;
  assign block_end = row_end && (m_left >= ROWS ? &row : row == $bits(row)'(m_left - 1));
  lane_store u_store (
      .clk,
      .rst,
      .valid (state == STORE),
      .ready (stored),
      .data  (finished),
      .count,
      .kind  (packet.kind[0]),
      .addr  (c_at),
      .stride(packet.stride[0][2]),
      .wr_valid,
      .wr_ready,
      .wr_line,
      .wr_data,
      .wr_strb
  );

  logic n_end, m_end;
  assign n_end = n_left <= COLUMNS;
  assign m_end = m_left <= ROWS;
  assign done  = state == STORE && stored && block_end && n_end && m_end && batch == packet.size[0] - 1;

  always_ff @(posedge clk) begin
    busy <= read;
    busy_tile <= tile;
    busy_pass <= pass;
    clear <= k == 0 && step == 0;
    case (state)
      IDLE:
      if (start) begin
        state <= RUN;
        {batch, m, n, k} <= 0;
        half <= 0;
        step <= 0;
        tile <= 0;
        pass <= 0;
        c_batch <= packet.addr[0][ADDR_WIDTH-1:0];
        c_m <= packet.addr[0][ADDR_WIDTH-1:0];
        c_n <= packet.addr[0][ADDR_WIDTH-1:0];
      end
      RUN:
      if (read) begin
        pass <= pass_last ? 0 : pass + 1;
        if (pass_last) tile <= tile_last ? 0 : column_tile == two_columns ? 2'b10 : 2'b01 | tile;
        if (pass_last && tile_last) step <= step_last ? 0 : step + 1;
        if (release_half) begin
          half <= !half;
          if (k == 0) for (int i = 0; i < ROWS; i++) bias[i] <= c_lanes[{half, $clog2(ROWS)'(i)}];
          k <= chunk_last ? 0 : k + 32'(chunk);
          if (chunk_last) state <= DRAIN;
          drained <= 0;
          row <= 0;
          column <= 0;
          c_row <= c_n;
        end
      end
      DRAIN: begin  // the last product is still on its way into the sums
        drained <= 1;
        if (drained) state <= STORE;
      end
      STORE:
      if (stored) begin
        column <= !row_end;
        if (row_end) begin
          row   <= row + 1;
          c_row <= c_row + extend(packet.stride[0][1]);
        end
        if (block_end) begin
          state <= done ? IDLE : RUN;
          n <= n_end ? 0 : n + COLUMNS;
          c_n <= c_n + n_hop;
          if (n_end) begin
            m   <= m_end ? 0 : m + ROWS;
            c_m <= c_m + m_hop;
            c_n <= c_m + m_hop;
            if (m_end) begin
              batch <= batch + 1;
              c_batch <= c_batch + extend(packet.stride[0][0]);
              c_m <= c_batch + extend(packet.stride[0][0]);
              c_n <= c_batch + extend(packet.stride[0][0]);
            end
          end
        end
      end
    endcase
    if (rst) begin
      state <= IDLE;
      busy  <= 0;
    end
  end
endmodule
