// Numbers of the functions that kernels (kernel_math.h, kernel_wide.h) and compiled loops (jit_functions.cpp) evaluate
// alike.
#pragma once

namespace cmodel {

// e^r for |r| <= ln(2) / 2, the highest power first; beyond these arguments e^x is 0 or infinite in F32.
inline constexpr float kExpLowest = -105.0f, kExpHighest = 89.0f;
inline constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f, kLog2E = 1.44269504f;
inline constexpr int kExpTerms = 8;
inline constexpr float kExpSeries[kExpTerms] = {1.991699334e-04f,
                                                1.394644606e-03f,
                                                8.333267089e-03f,
                                                4.166626455e-02f,
                                                1.666666685e-01f,
                                                5.000000080e-01f,
                                                1.0f,
                                                1.0f};

// Beyond these arguments 2^x is 0 or infinite, and below the last e^x - 1 is -1.
inline constexpr float kExp2Lowest = -152.0f, kExp2Highest = 129.0f, kLn2 = 0.693147181f, kExpm1Lowest = -18.0f;

// tanh(x) = x + x * z * p(z), z = x^2, for |x| below kTanhNear; elsewhere by e^(-2|x|), which is as good as 0 at -40.
inline constexpr float kTanhNear = 0.64f, kTanhLowest = -40.0f;
inline constexpr int kTanhTerms = 6;
inline constexpr float kTanhSeries[kTanhTerms] = {2.097714147e-03f,  -8.128992007e-03f, 2.168163893e-02f,
                                                  -5.394339903e-02f, 1.333318053e-01f,  -3.333333019e-01f};

// log(1 + f) = f - f^2 / 2 + f^3 * p(f), 1 + f in [sqrt(1/2), sqrt(2))
inline constexpr float kLeastNormal = 1.17549435e-38f;
inline constexpr unsigned kRootHalf = 0x3f3504f3u;  // bits of sqrt(1/2)
inline constexpr int kLogTerms = 9;
inline constexpr float kLogSeries[kLogTerms] = {6.746551628e-02f,  -1.167562817e-01f, 1.188819036e-01f,
                                                -1.240559455e-01f, 1.421954904e-01f,  -1.666799543e-01f,
                                                2.000211883e-01f,  -2.500000961e-01f, 3.333331260e-01f};

// erf(x) = x + x * p(x^2) for |x| below kErfNear; elsewhere 1 - e^(-s * q(s)), s = |x|, which is 1 in F32 from 4 on.
inline constexpr float kErfNear = 0.93f, kErfHighest = 4.0f;
inline constexpr int kErfNearTerms = 7, kErfFarTerms = 8;
inline constexpr float kErfNearSeries[kErfNearTerms] = {8.345221353e-05f,  -8.137436648e-04f, 5.200634217e-03f,
                                                        -2.685927074e-02f, 1.128369394e-01f,  -3.761263370e-01f,
                                                        1.283791666e-01f};
inline constexpr float kErfFarSeries[kErfFarTerms] = {4.938154622e-06f, -4.558046519e-05f, -4.959036303e-05f,
                                                      2.930167367e-03f, -2.267415376e-02f, 1.052627139e-01f,
                                                      6.356252659e-01f, 1.128551749e+00f};

// With AVX-512, where a register holds a table: erf(s) = value + u * q(u), u = s - center, in 16 intervals of [0, 4);
// each center is a point where erf is an F32 number as good as exactly. In the first interval erf(s) = s + s * q(s).
// Errors are below 1.2 units in the last place.
inline constexpr float kErfLast = 3.9999998f;  // the greatest argument of the last interval
alignas(64) inline constexpr float kErfCenter[16] = {
    0.0f,        0.375000536f, 0.624998212f, 0.874997199f, 1.12500894f, 1.37499821f, 1.62499344f, 1.87499917f,
    2.12499142f, 2.37499285f,  2.62498116f,  2.87497449f,  3.12503195f, 3.37509513f, 3.62490487f, 3.87490487f};
alignas(64) inline constexpr float kErfValue[16] = {
    0.0f,         0.404117435f, 0.623239517f, 0.784073591f, 0.888391078f, 0.948169768f, 0.978443205f, 0.99199003f,
    0.997345865f, 0.999217033f, 0.999794602f, 0.999952137f, 0.999990106f, 0.999998212f, 0.999999702f, 0.99999994f};
alignas(64) inline constexpr float kErfQ[5][16] = {
    {0.128379136f, 0.980352402f, 0.763501227f, 0.52474761f, 0.318267554f, 0.17036061f, 0.0804739743f, 0.0335459299f,
     0.0123412702f, 0.00400661398f, 0.00114798895f, 0.000290271069f, 6.47458728e-05f, 1.27436024e-05f, 2.21746109e-06f,
     3.40076127e-07f},
    {6.60820706e-06f, -0.367627352f, -0.477182508f, -0.459151596f, -0.358055502f, -0.234247893f, -0.13077122f,
     -0.0628990382f, -0.0262249038f, -0.00951534882f, -0.00301320874f, -0.000834399194f, -0.000202283962f,
     -4.29949396e-05f, -8.0337677e-06f, -1.31677189e-06f},
    {-0.376324654f, -0.234874681f, -0.0556760468f, 0.0929183885f, 0.162451297f, 0.157938212f, 0.114843227f,
     0.067442283f, 0.033038713f, 0.0137308873f, 0.00489069428f, 0.00150261843f, 0.00039988989f, 9.25054919e-05f,
     1.86792349e-05f, 3.28910664e-06f},
    {0.00197638548f, 0.165491745f, 0.175558239f, 0.112169996f, 0.0283081234f, -0.0300171953f, -0.0494036898f,
     -0.0421695784f, -0.0264006741f, -0.0132014044f, -0.00546382833f, -0.00190697145f, -0.000567417825f,
     -0.000145032653f, -3.20602667e-05f, -6.13611246e-06f},
    {0.106041782f, 0.0453261808f, -0.0270351227f, -0.066709213f, -0.0610613339f, -0.0306438766f, -0.0023031577f,
     0.0113280257f, 0.0124441963f, 0.00836055633f, 0.00423637172f, 0.00172767823f, 0.000584276568f, 0.000166593847f,
     4.04557686e-05f, 8.4295425e-06f}};

}  // namespace cmodel
