// The NPU: registers on an AXI4-Lite slave, device memory on an AXI4 master of one line per beat, one interrupt.
module npu_top
  import npu_pkg::*;
  import packet_pkg::*;
(
    input  logic clk,
    input  logic rst,
    output logic irq_pin,

    input  logic        s_awvalid,
    output logic        s_awready,
    input  logic [ 7:0] s_awaddr,
    input  logic        s_wvalid,
    output logic        s_wready,
    input  logic [31:0] s_wdata,
    output logic        s_bvalid,
    input  logic        s_bready,
    output logic [ 1:0] s_bresp,
    input  logic        s_arvalid,
    output logic        s_arready,
    input  logic [ 7:0] s_araddr,
    output logic        s_rvalid,
    input  logic        s_rready,
    output logic [31:0] s_rdata,
    output logic [ 1:0] s_rresp,

    // Transactions of one beat: length 0, full size, incrementing burst, one id.
    output logic                    m_arvalid,
    input  logic                    m_arready,
    output logic [  ADDR_WIDTH-1:0] m_araddr,
    output logic [             7:0] m_arlen,
    output logic [             2:0] m_arsize,
    output logic [             1:0] m_arburst,
    input  logic                    m_rvalid,
    output logic                    m_rready,
    input  logic [8*LINE_BYTES-1:0] m_rdata,
    input  logic [             1:0] m_rresp,
    output logic                    m_awvalid,
    input  logic                    m_awready,
    output logic [  ADDR_WIDTH-1:0] m_awaddr,
    output logic [             7:0] m_awlen,
    output logic [             2:0] m_awsize,
    output logic [             1:0] m_awburst,
    output logic                    m_wvalid,
    input  logic                    m_wready,
    output logic [8*LINE_BYTES-1:0] m_wdata,
    output logic [  LINE_BYTES-1:0] m_wstrb,
    output logic                    m_wlast,
    input  logic                    m_bvalid,
    output logic                    m_bready,
    input  logic [             1:0] m_bresp
);
  localparam int LINE_ADDR = ADDR_WIDTH - $clog2(LINE_BYTES);
  assign m_arlen   = 0;
  assign m_awlen   = 0;
  assign m_arsize  = 3'($clog2(LINE_BYTES));
  assign m_awsize  = 3'($clog2(LINE_BYTES));
  assign m_arburst = 2'b01;
  assign m_awburst = 2'b01;
  assign m_wlast   = 1;

  packet_t packet;
  logic enable, resetting, unit_rst, busy, irq, error, bus_idle, bus_error, matrix_busy;
  logic start_vector, start_gemm, vector_done, gemm_done, check_failed;
  logic [2:0] sources;
  logic [LINE_ADDR-1:0] ring;
  logic [31:0] ring_size, tail, head, retired;
  logic [7:0] error_code;
  logic [ADDR_WIDTH-1:0] error_addr, bus_error_addr;
  logic [31:0] check_position;
  assign error_addr = bus_error ? bus_error_addr : ADDR_WIDTH'(check_position);
  assign unit_rst   = rst || resetting;

  registers u_registers (
      .*,
      .line_read(m_rvalid),
      .line_written(m_bvalid),
      .error_tag(packet.tag)
  );

  // One unit works at a time, and beside it the sequencer reads the next packet.
  logic rd_fetch, rsp_fetch, stored, unit_ready, unit_rsp;
  logic seq_rd_valid, vec_rd_valid, gemm_rd_valid, vec_wr_valid, gemm_wr_valid, rd_ready, wr_ready, rsp_valid;
  logic [LINE_ADDR-1:0] seq_rd_line, vec_rd_line, gemm_rd_line, vec_wr_line, gemm_wr_line;
  logic [8*LINE_BYTES-1:0] rsp_data, vec_wr_data, gemm_wr_data;
  logic [LINE_BYTES-1:0] vec_wr_strb, gemm_wr_strb;

  assign rd_fetch   = seq_rd_valid;
  assign unit_ready = rd_ready && !rd_fetch;
  assign unit_rsp   = rsp_valid && !rsp_fetch;

  sequencer u_sequencer (
      .*,
      .rst(unit_rst),
      .unit_done(vector_done || gemm_done),
      .rd_valid(seq_rd_valid),
      .rd_line(seq_rd_line),
      .rsp_valid(rsp_valid && rsp_fetch)
  );

  vector_unit u_vector (
      .clk,
      .rst(unit_rst),
      .start(start_vector),
      .packet,
      .sources,
      .done(vector_done),
      .check_failed,
      .check_position,
      .bus_idle,
      .rd_valid(vec_rd_valid),
      .rd_ready(unit_ready),
      .rd_line(vec_rd_line),
      .rsp_valid(unit_rsp),
      .rsp_data,
      .wr_valid(vec_wr_valid),
      .wr_ready,
      .wr_line(vec_wr_line),
      .wr_data(vec_wr_data),
      .wr_strb(vec_wr_strb)
  );

  gemm_unit u_gemm (
      .clk,
      .rst(unit_rst),
      .start(start_gemm),
      .packet,
      .done(gemm_done),
      .busy(matrix_busy),
      .rd_valid(gemm_rd_valid),
      .rd_ready(unit_ready),
      .rd_line(gemm_rd_line),
      .rsp_valid(unit_rsp),
      .rsp_data,
      .wr_valid(gemm_wr_valid),
      .wr_ready,
      .wr_line(gemm_wr_line),
      .wr_data(gemm_wr_data),
      .wr_strb(gemm_wr_strb)
  );

  axi_port u_port (
      .*,
      .rd_valid(!unit_rst && (seq_rd_valid || vec_rd_valid || gemm_rd_valid)),
      .rd_line(seq_rd_valid ? seq_rd_line : vec_rd_valid ? vec_rd_line : gemm_rd_line),
      .wr_valid(!unit_rst && (vec_wr_valid || gemm_wr_valid)),
      .wr_line(vec_wr_valid ? vec_wr_line : gemm_wr_line),
      .wr_data(vec_wr_valid ? vec_wr_data : gemm_wr_data),
      .wr_strb(vec_wr_valid ? vec_wr_strb : gemm_wr_strb),
      .idle(bus_idle),
      .error(bus_error),
      .error_addr(bus_error_addr),
      .clear_error(resetting)
  );
endmodule
