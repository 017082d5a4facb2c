// The way to device memory: whole lines, in order. Takes requests from the unit at work and speaks AXI4 with one beat
// per transaction. Requests are kept here until the bus has taken them, so a unit may be reset at any time.
module axi_port
  import npu_pkg::*;
#(
    localparam int LINE_ADDR = ADDR_WIDTH - $clog2(LINE_BYTES)
) (
    input logic clk,
    input logic rst,

    input  logic                    rd_valid,
    output logic                    rd_ready,
    input  logic [   LINE_ADDR-1:0] rd_line,
    input  logic                    rd_fetch,   // for the sequencer; otherwise for the unit at work
    output logic                    rsp_valid,  // answers come in the order of requests and cannot be held back
    output logic                    rsp_fetch,
    output logic [8*LINE_BYTES-1:0] rsp_data,

    input  logic                    wr_valid,
    output logic                    wr_ready,
    input  logic [   LINE_ADDR-1:0] wr_line,
    input  logic [8*LINE_BYTES-1:0] wr_data,
    input  logic [  LINE_BYTES-1:0] wr_strb,

    output logic                  idle,        // nothing is on its way
    output logic                  stored,      // no store is
    output logic                  error,       // an answer was an error; error_addr is the first one's
    output logic [ADDR_WIDTH-1:0] error_addr,
    input  logic                  clear_error,

    output logic                    m_arvalid,
    input  logic                    m_arready,
    output logic [  ADDR_WIDTH-1:0] m_araddr,
    input  logic                    m_rvalid,
    output logic                    m_rready,
    input  logic [8*LINE_BYTES-1:0] m_rdata,
    input  logic [             1:0] m_rresp,
    output logic                    m_awvalid,
    input  logic                    m_awready,
    output logic [  ADDR_WIDTH-1:0] m_awaddr,
    output logic                    m_wvalid,
    input  logic                    m_wready,
    output logic [8*LINE_BYTES-1:0] m_wdata,
    output logic [  LINE_BYTES-1:0] m_wstrb,
    input  logic                    m_bvalid,
    output logic                    m_bready,
    input  logic [             1:0] m_bresp
);
  localparam int RW = $clog2(READS), WW = $clog2(WRITES), SHIFT = $clog2(LINE_BYTES);

  // Addresses of what is on its way, for the report of an error.
  logic [LINE_ADDR-1:0] rd_pending[READS];
  logic [LINE_ADDR-1:0] wr_pending[WRITES];
  logic [READS-1:0] fetches;
  logic [RW:0] rd_in, rd_out, rd_count;
  logic [WW:0] wr_in, wr_out, wr_count;
  logic [LINE_ADDR-1:0] ar_line, aw_line;

  assign rd_count = rd_in - rd_out;
  assign wr_count = wr_in - wr_out;
  assign rd_ready = (!m_arvalid || m_arready) && !rd_count[RW];
  assign wr_ready = (!m_awvalid || m_awready) && (!m_wvalid || m_wready) && !wr_count[WW];
  assign stored = wr_count == 0;
  assign idle = rd_count == 0 && stored;
  assign m_araddr = {ar_line, SHIFT'(0)};
  assign m_awaddr = {aw_line, SHIFT'(0)};
  assign m_rready = 1;
  assign m_bready = 1;
  assign rsp_valid = m_rvalid;
  assign rsp_fetch = fetches[rd_out[RW-1:0]];
  assign rsp_data = m_rdata;

  always_ff @(posedge clk) begin
    if (m_arready) m_arvalid <= 0;
    if (m_awready) m_awvalid <= 0;
    if (m_wready) m_wvalid <= 0;
    if (rd_valid && rd_ready) begin
      m_arvalid <= 1;
      ar_line <= rd_line;
      rd_pending[rd_in[RW-1:0]] <= rd_line;
      fetches[rd_in[RW-1:0]] <= rd_fetch;
      rd_in <= rd_in + 1;
    end
    if (wr_valid && wr_ready) begin
      m_awvalid <= 1;
      m_wvalid <= 1;
      aw_line <= wr_line;
      m_wdata <= wr_data;
      m_wstrb <= wr_strb;
      wr_pending[wr_in[WW-1:0]] <= wr_line;
      wr_in <= wr_in + 1;
    end
    if (m_rvalid) rd_out <= rd_out + 1;
    if (m_bvalid) wr_out <= wr_out + 1;
    if (clear_error) error <= 0;
    else if (!error && m_rvalid && m_rresp[1]) begin
      error <= 1;
      error_addr <= {rd_pending[rd_out[RW-1:0]], SHIFT'(0)};
    end else if (!error && m_bvalid && m_bresp[1]) begin
      error <= 1;
      error_addr <= {wr_pending[wr_out[WW-1:0]], SHIFT'(0)};
    end
    if (rst) begin
      m_arvalid <= 0;
      m_awvalid <= 0;
      m_wvalid <= 0;
      rd_in <= 0;
      rd_out <= 0;
      wr_in <= 0;
      wr_out <= 0;
      error <= 0;
    end
  end
endmodule
