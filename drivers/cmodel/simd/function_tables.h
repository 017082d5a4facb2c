// Numbers of the functions that kernels (simd/math.h, simd/wide.h) and compiled loops (jit/functions.cpp) evaluate
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

// tanh alike, in two intervals to each power of two from 1/16 on, the first of which begins at 0 and the last of which
// ends at kTanhLast, where tanh is 1. The number of an interval is in the bits of s from 22 on: entry 6 is the first
// one's. Errors are below 1.7 units in the last place.
inline constexpr float kTanhFirst = 0.0625f, kTanhLast = 9.02f;
alignas(64) inline constexpr float kTanhCenter[16] = {
    2.4997172f,  3.5005865f,  5.0f,        7.0f,        8.51f,       10.51f,    0.0f,       0.1093669f,
    0.15621144f, 0.21874551f, 0.31252342f, 0.43750852f, 0.62510663f, 0.875142f, 1.2497119f, 1.749765f};
alignas(64) inline constexpr float kTanhValue[16] = {
    0.9866068f,  0.99818003f, 0.9999092f, 0.99999833f, 0.99999994f, 1.0f,       0.0f,       0.10893293f,
    0.15495309f, 0.21532206f, 0.302731f,  0.41157714f, 0.55467355f, 0.7039772f, 0.8482028f, 0.9413488f};
alignas(64) inline constexpr float kTanhQ[6][16] = {
    {0.026607102f, 0.0036366445f, 0.00018185897f, 3.3311983e-06f, 1.6232244e-07f, 2.9683607e-09f, 1.0f, 0.9881336f,
     0.9759895f, 0.9536364f, 0.9083539f, 0.83060426f, 0.6923373f, 0.50441605f, 0.28055194f, 0.11386244f},
    {-0.02625069f, -0.0036300118f, -0.00018163389f, -3.3273516e-06f, -1.6231937e-07f, -2.9425815e-09f, -7.5237105e-10f,
     -0.10764035f, -0.15123262f, -0.20533897f, -0.27498692f, -0.34185773f, -0.38402116f, -0.3550974f, -0.23796499f,
     -0.107184276f},
    {0.017027728f, 0.002409733f, 0.0001188311f, 2.1769565e-06f, 1.0808731e-07f, 1.8848854e-09f, -0.33333293f,
     -0.31765231f, -0.3018959f, -0.27366477f, -0.21953759f, -0.13616745f, -0.017776765f, 0.08184029f, 0.10833517f,
     0.062947944f},
    {-0.008053331f, -0.0011964492f, -5.995485e-05f, -1.0987612e-06f, -5.407501e-08f, -8.2104645e-10f, -3.4279303e-05f,
     0.071143664f, 0.097237535f, 0.12739725f, 0.15813506f, 0.16999555f, 0.1378661f, 0.060752403f, -0.012557549f,
     -0.023525527f},
    {0.0028848706f, 0.00048721462f, 2.8474347e-05f, 5.227172e-07f, 2.2597742e-08f, 2.2406511e-10f, 0.13435912f,
     0.120235935f, 0.10721474f, 0.08495513f, 0.04549564f, -0.0059869983f, -0.0544661f, -0.058579627f, -0.019647313f,
     0.0035100859f},
    {-0.00070374826f, -0.00015608354f, -9.099818e-06f, -1.6735453e-07f, -7.452101e-09f, -2.8616318e-11f, -0.012550747f,
     -1.8433225f, -0.08441665f, -0.08226068f, -0.07450328f, -0.061614193f, -0.024022086f, 0.013041692f, 0.015105976f,
     0.00206098f}};

}  // namespace cmodel
