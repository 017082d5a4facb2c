// Floating point without branches: every step is a choice between two values, which is both what the circuit is and
// what a simulator runs fastest. Subnormal numbers are kept, rounding is to nearest even, every NaN is 0x7FC00000.
package fp_pkg;
  localparam logic [31:0] NAN = 32'h7FC0_0000;
  localparam logic [30:0] INF = 31'h7F80_0000;

  // A number moved left until its highest bit is 1, and by how many places: the most there are where it is 0. The two
  // functions that the matrix engine runs for every product, bf16_mul and add, have steps of their own width.
  typedef struct packed {
    logic [4:0]  places;
    logic [31:0] bits;
  } left32_t;
  typedef struct packed {
    logic [5:0]  places;
    logic [63:0] bits;
  } left64_t;

  function automatic left32_t left32(logic [31:0] a);
    logic [ 4:0] lz;
    logic [31:0] m;
    m = a;
    lz[4] = m[31:16] == 0;
    m = lz[4] ? m << 16 : m;
    lz[3] = m[31:24] == 0;
    m = lz[3] ? m << 8 : m;
    lz[2] = m[31:28] == 0;
    m = lz[2] ? m << 4 : m;
    lz[1] = m[31:30] == 0;
    m = lz[1] ? m << 2 : m;
    lz[0] = !m[31];
    m = lz[0] ? m << 1 : m;
    return {lz, m};
  endfunction

  function automatic left64_t left64(logic [63:0] a);
    logic [ 5:0] lz;
    logic [63:0] m;
    m = a;
    lz[5] = m[63:32] == 0;
    m = lz[5] ? m << 32 : m;
    lz[4] = m[63:48] == 0;
    m = lz[4] ? m << 16 : m;
    lz[3] = m[63:56] == 0;
    m = lz[3] ? m << 8 : m;
    lz[2] = m[63:60] == 0;
    m = lz[2] ? m << 4 : m;
    lz[1] = m[63:62] == 0;
    m = lz[1] ? m << 2 : m;
    lz[0] = !m[63];
    m = lz[0] ? m << 1 : m;
    return {lz, m};
  endfunction

  // The product of two bf16 numbers: 16 significant bits, so it is exact in f32 unless it is subnormal or overflows.
  function automatic logic [31:0] bf16_mul(logic [15:0] a, logic [15:0] b);
    logic sign, nan, zero, tiny, inc;
    logic [15:0] p;
    logic signed [10:0] e;
    logic [3:0] lz;
    logic [5:0] sh;
    logic [47:0] wide;
    logic [31:0] fields;
    sign = a[15] ^ b[15];
    p = {8'b0, |a[14:7], a[6:0]} * {8'b0, |b[14:7], b[6:0]};
    zero = p == 0;
    lz[3] = p[15:8] == 0;
    p = lz[3] ? p << 8 : p;
    lz[2] = p[15:12] == 0;
    p = lz[2] ? p << 4 : p;
    lz[1] = p[15:14] == 0;
    p = lz[1] ? p << 2 : p;
    lz[0] = !p[15];
    p = lz[0] ? p << 1 : p;
    e = {3'b0, a[14:7]} + {10'b0, a[14:7] == 0} + {3'b0, b[14:7]} + {10'b0, b[14:7] == 0} - 11'sd126 - {7'b0, lz};
    // Below the normal range the significand moves right and is rounded.
    tiny = e < 1;
    sh = !tiny ? 0 : e < -30 ? 31 : 6'(11'sd1 - e);
    wide = {p, 32'b0} >> sh;  // bit 47 is the integer bit of a normal number
    inc = wide[23] & (|wide[22:0] | wide[24]);
    fields = {1'b0, tiny ? 8'd0 : e[7:0], wide[46:24]} + {31'b0, inc};
    nan = (&a[14:7] & (|a[6:0] | b[14:0] == 0)) | (&b[14:7] & (|b[6:0] | a[14:0] == 0));
    return nan ? NAN : {sign, (&a[14:7] | &b[14:7] | e > 254) & !zero ? INF : zero ? 31'd0 : fields[30:0]};
  endfunction

  function automatic logic [31:0] add(logic [31:0] a, logic [31:0] b);
    logic swap, sub, up, inc;
    logic [31:0] x, y, fields;
    logic [7:0] ex, ey, d;
    logic [4:0] sh, lz, left;
    logic [26:0] my, lost;
    logic [27:0] s, t;
    logic [8:0] e;
    swap = b[30:0] > a[30:0];
    x = swap ? b : a;
    y = swap ? a : b;
    ex = {x[30:24], x[23] | x[30:23] == 0};
    ey = {y[30:24], y[23] | y[30:23] == 0};
    d = ex - ey;
    sh = d > 27 ? 5'd27 : d[4:0];
    my = {|y[30:23], y[22:0], 3'b0};
    lost = my & ((27'd1 << sh) - 27'd1);
    my = (my >> sh) | {26'b0, lost != 0};
    sub = x[31] ^ y[31];
    s = {1'b0, |x[30:23], x[22:0], 3'b0};
    s = sub ? s - {1'b0, my} : s + {1'b0, my};
    up = s[27];
    // Leading zeros of the 27 bits below the carry.
    t = s << 1;
    lz[4] = t[27:12] == 0;
    t = lz[4] ? t << 16 : t;
    lz[3] = t[27:20] == 0;
    t = lz[3] ? t << 8 : t;
    lz[2] = t[27:24] == 0;
    t = lz[2] ? t << 4 : t;
    lz[1] = t[27:26] == 0;
    t = lz[1] ? t << 2 : t;
    lz[0] = !t[27];
    left = {3'b0, lz} >= ex ? 5'(ex - 8'd1) : lz;
    t = up ? {1'b0, s[27:1]} | {27'b0, s[0]} : s << left;
    e = t[26] ? {1'b0, ex} + {8'b0, up} - (up ? 9'd0 : {4'b0, left}) : 9'd0;
    inc = t[2] & (t[1] | t[0] | t[3]);
    fields = {e, t[25:3]} + {31'b0, inc};
    fields = e > 254 ? {1'b0, INF} : fields;
    return x[30:0] > INF || (sub && y[30:0] == INF) ? NAN
        : x[30:0] == INF ? x
        : {s == 0 ? x[31] & y[31] : x[31], fields[30:0]};
  endfunction

  // A finite number other than 0 as sig * 2^(e - 127) with sig in [1, 2): the 24 bits of sig, and a signed exponent.
  typedef struct packed {
    logic signed [9:0] e;
    logic [23:0] sig;
  } normal_t;

  function automatic normal_t normalize(logic [31:0] a);
    normal_t n;
    left32_t m;
    m = left32({|a[30:23], a[22:0], 8'b0});
    n.sig = m.bits[31:8];
    n.e = {2'b0, a[30:23]} + {9'b0, a[30:23] == 0} - {5'b0, m.places};
    return n;
  endfunction

  // sign * sig * 2^(e - 127), rounded once; sig has its integer bit at 51 and a sticky bit at 0.
  function automatic logic [31:0] round(logic sign, logic signed [11:0] e, logic [51:0] sig);
    logic tiny, inc;
    logic [5:0] sh;
    logic [51:0] lost, m;
    logic [31:0] fields;
    tiny = e < 1;
    sh = !tiny ? 0 : e < -28 ? 30 : 6'(12'sd1 - e);
    lost = sig & ((52'd1 << sh) - 52'd1);
    m = (sig >> sh) | {51'b0, lost != 0};
    inc = m[27] & (|m[26:0] | m[28]);
    fields = {1'b0, tiny ? 8'd0 : e[7:0], m[50:28]} + {31'b0, inc};
    return {sign, e > 254 ? INF : fields[30:0]};
  endfunction

  // a * b + c, rounded once. add is fma(a, 1, b), mul is fma(a, b, -0).
  function automatic logic [31:0] fma(logic [31:0] a, logic [31:0] b, logic [31:0] c);
    normal_t na, nb, nc;
    logic sp, zp, zc, nan, infp, infc, top, big, sub;
    logic [47:0] p;
    logic signed [11:0] ep, ec, ex, d;
    logic [51:0] mp, mc, mx, my, lost, s;
    logic [5:0] sh;
    left64_t left;
    na = normalize(a);
    nb = normalize(b);
    nc = normalize(c);
    sp = a[31] ^ b[31];
    zp = a[30:0] == 0 | b[30:0] == 0;
    zc = c[30:0] == 0;
    infp = &a[30:23] | &b[30:23];
    infc = &c[30:23];
    nan = a[30:0] > INF | b[30:0] > INF | c[30:0] > INF | (infp & zp) | (infp & infc & (sp ^ c[31]));
    p = {24'b0, na.sig} * {24'b0, nb.sig};
    top = p[47];
    // Both terms with the integer bit at 50: bit 51 takes the carry.
    mp = zp ? 0 : {1'b0, top ? p : p << 1, 3'b0};
    mc = zc ? 0 : {1'b0, nc.sig, 27'b0};
    ep = zp ? -12'sd1000 : 12'(na.e) + 12'(nb.e) - 12'sd127 + {11'b0, top};
    ec = zc ? -12'sd1000 : 12'(nc.e);
    big = ep > ec | (ep == ec & mp >= mc);
    mx = big ? mp : mc;
    my = big ? mc : mp;
    ex = big ? ep : ec;
    d = big ? ep - ec : ec - ep;
    sh = d > 52 ? 6'd52 : d[5:0];
    lost = my & ((52'd1 << sh) - 52'd1);
    my = (my >> sh) | {51'b0, lost != 0};
    sub = sp ^ c[31];
    s = sub ? mx - my : mx + my;
    left = left64({s, 12'b0});
    return nan ? NAN : infp ? {sp, INF} : infc ? c : s == 0 ? {sp & c[31], 31'b0} : round(
        big ? sp : c[31], ex + 12'sd1 - {6'b0, left.places}, left.bits[63:12]
    );
  endfunction

  // The bits of a significand that the matrix engine multiplies at a time.
  function automatic logic [7:0] part(logic [31:0] a, logic [1:0] i);
    return i == 0 ? a[7:0] : i == 1 ? a[15:8] : {|a[30:23], a[22:16]};
  endfunction

  // a * b, given the product of their significands.
  function automatic logic [31:0] product(logic [31:0] a, logic [31:0] b, logic [47:0] significands);
    logic sign, nan;
    left64_t p;
    logic signed [11:0] e;
    sign = a[31] ^ b[31];
    p = left64({significands, 16'b0});
    e = {4'b0, a[30:23]} + {11'b0, a[30:23] == 0} + {4'b0, b[30:23]} + {11'b0, b[30:23] == 0} - 12'sd126 - {6'b0, p.places};
    nan = a[30:0] > INF | b[30:0] > INF | (a[30:0] == INF & b[30:0] == 0) | (b[30:0] == INF & a[30:0] == 0);
    return nan ? NAN : &a[30:23] | &b[30:23] ? {sign, INF} : significands == 0 ? {sign, 31'b0} : round(
        sign, e, p.bits[63:12]
    );
  endfunction

  function automatic logic is_nan(logic [31:0] a);
    return a[30:0] > INF;
  endfunction

  // a < b for numbers that are no NaN. Both zeros are equal.
  function automatic logic less(logic [31:0] a, logic [31:0] b);
    logic both_zero;
    both_zero = a[30:0] == 0 & b[30:0] == 0;
    return !both_zero & (a[31] != b[31] ? a[31] : a[31] ? b[30:0] < a[30:0] : a[30:0] < b[30:0]);
  endfunction

  function automatic logic [15:0] to_bf16(logic [31:0] a);
    logic [31:0] r;
    r = a + 32'h7FFF + {31'b0, a[16]};
    return is_nan(a) ? 16'h7FC0 : r[31:16];
  endfunction

  function automatic logic [31:0] from_bf16(logic [15:0] a);
    return a[14:0] > 15'h7F80 ? NAN : {a, 16'b0};
  endfunction

  function automatic logic [15:0] to_f16(logic [31:0] a);
    logic [23:0] sig, lost, m;
    logic [4:0] sh;
    logic tiny, inc;
    logic [ 7:0] e;
    logic [15:0] fields;
    sig = {|a[30:23], a[22:0]};
    tiny = a[30:23] < 113;
    sh = !tiny ? 5'd0 : a[30:23] < 100 ? 5'd14 : 5'(8'd113 - a[30:23]);
    lost = sig & ((24'd1 << sh) - 24'd1);
    m = sig >> sh;
    inc = m[12] & (|m[11:0] | lost != 0 | m[13]);
    e = tiny ? 8'd0 : a[30:23] - 8'd112;
    fields = {1'b0, e[4:0], m[22:13]} + {15'b0, inc};
    return is_nan(a) ? 16'h7E00 : {a[31], a[30:0] >= 31'h477F_F000 ? 15'h7C00 : fields[14:0]};
  endfunction

  function automatic logic [31:0] from_f16(logic [15:0] a);
    left32_t m;
    logic [7:0] e;
    m = left32({|a[14:10], a[9:0], 21'b0});
    e = {3'b0, a[14:10]} + {7'b0, a[14:10] == 0} + 8'd112 - {3'b0, m.places};
    return &a[14:10] ? (a[9:0] != 0 ? NAN : {a[15], INF}) : a[14:0] == 0 ? {a[15], 31'b0} : {a[15], e, m.bits[30:21], 13'b0};
  endfunction

  function automatic logic [31:0] from_int(logic [31:0] a);
    left32_t m;
    m = left32(a[31] ? -a : a);
    return a == 0 ? 0 : round(a[31], 12'sd158 - {7'b0, m.places}, {m.bits, 20'b0});
  endfunction

  // Towards zero; what does not fit, and a NaN, is the smallest integer.
  function automatic logic [31:0] to_int(logic [31:0] a);
    logic [31:0] m;
    m = {1'b1, a[22:0], 8'b0} >> 5'(8'd158 - a[30:23]);
    return a[30:23] < 127 ? 0 : a[30:23] > 157 ? 32'h8000_0000 : a[31] ? -m : m;
  endfunction

  function automatic logic [31:0] from_long(logic [63:0] a);
    left64_t m;
    m = left64(a[63] ? -a : a);
    return a == 0 ? 0 : round(a[63], 12'sd190 - {6'b0, m.places}, {m.bits[63:13], |m.bits[12:0]});
  endfunction

  function automatic logic [63:0] to_long(logic [31:0] a);
    logic [63:0] m;
    m = {1'b1, a[22:0], 40'b0} >> 6'(8'd190 - a[30:23]);
    return a[30:23] < 127 ? 0 : a[30:23] > 189 ? 64'h8000_0000_0000_0000 : a[31] ? -m : m;
  endfunction

  // The nearest integer, ties to even, or the next one below. Zeros keep their sign.
  function automatic logic [31:0] integral(logic [31:0] a, logic down);
    logic [4:0] places;  // bits behind the point
    logic [31:0] unit, frac, cut;
    logic up, below;
    below = a[30:23] < 127;  // below 1
    places = 5'(8'd150 - a[30:23]);
    unit = 32'd1 << places;
    frac = a & (unit - 32'd1);
    cut = a & ~(unit - 32'd1);
    up = down ? a[31] & frac != 0 : frac > unit >> 1 | (frac == unit >> 1 & |(a & unit));
    // From 1 to 2 the unit is the lowest bit of the exponent, which is odd as it should be.
    cut = up ? cut + unit : cut;
    return a[30:23] > 149 ? (is_nan(
        a
    ) ? NAN : a) : !below ?
        cut : (down ? a[31] & a[30:0] != 0 : a[30:0] > 31'h3F00_0000) ? {a[31], 31'h3F80_0000} : {a[31], 31'b0};
  endfunction
endpackage
