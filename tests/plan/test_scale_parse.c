/* The values of --world-size, --interconnect, --flops-per-rank and --straggler. */
#include "src/base/assert.h"
#include "src/plan/scale_parse.h"
#include "tests/test.h"

static void check_sizes(fsdp_test *t, const char *text, const int *expected, size_t n, bool range)
{
    int sizes[FSDP_SCALE_MAX_SIZES];
    size_t found;
    bool is_range;
    ASSERT_OK(fsdp_scale_parse_sizes(text, sizes, &found, &is_range));
    ASSERT_INT(found, n);
    ASSERT(is_range == range);
    for (size_t i = 0; i < n; i++)
        ASSERT_INT(sizes[i], expected[i]);
}

TEST(a_range_doubles_and_ends_at_its_last_number)
{
    check_sizes(t, "64", (const int[]){64}, 1, false);
    check_sizes(t, "8..64", (const int[]){8, 16, 32, 64}, 4, true);
    check_sizes(t, "3..20", (const int[]){3, 6, 12, 20}, 4, true);
    check_sizes(t, "5..5", (const int[]){5}, 1, true);
    check_sizes(t, "8,24,1..4", (const int[]){8, 24, 1, 2, 4}, 5, true);
    check_sizes(t, "1048576", (const int[]){1 << 20}, 1, false);
}

TEST(wrong_numbers_of_ranks_are_refused)
{
    static const char *const wrong[] = {"",
                                        "0",
                                        "8..",
                                        "..8",
                                        "8..4",
                                        "8,",
                                        ",8",
                                        "8 ",
                                        "-8",
                                        "8...16",
                                        "1.5",
                                        "8..16x",
                                        "0..4",
                                        "8;16",
                                        "1e3",
                                        "1048577",
                                        "99999999999999999999",
                                        "0x8",
                                        "8.16",
                                        "8..0,4"};
    int sizes[FSDP_SCALE_MAX_SIZES];
    size_t n;
    bool is_range;
    for (size_t i = 0; i < FSDP_LENGTH(wrong); i++)
        ASSERT_ERROR(fsdp_scale_parse_sizes(wrong[i], sizes, &n, &is_range), FSDP_ERR_INVALID,
                     "--world-size");
    char many[300] = "1";
    for (int i = 0; i < FSDP_SCALE_MAX_SIZES; i++)
        strcat(many, ",2");
    ASSERT_ERROR(fsdp_scale_parse_sizes(many, sizes, &n, &is_range), FSDP_ERR_INVALID, "too many");
    many[2 * FSDP_SCALE_MAX_SIZES - 1] = '\0';
    ASSERT_OK(fsdp_scale_parse_sizes(many, sizes, &n, &is_range));
    ASSERT_INT(n, FSDP_SCALE_MAX_SIZES);
    strcat(many, "..8");
    ASSERT_ERROR(fsdp_scale_parse_sizes(many, sizes, &n, &is_range), FSDP_ERR_INVALID, "too many");
    ASSERT_OK(fsdp_scale_parse_sizes("1..1048576", sizes, &n, &is_range));
    ASSERT_INT(n, 21);
}

TEST(bandwidths_are_bits_or_bytes)
{
    static const struct {
        const char *text;
        double bytes_per_s, latency_s;
    } right[] = {
        {"100Gb,2us", 12.5e9, 2e-6},
        {"100Gbit/s,2us", 12.5e9, 2e-6},
        {"12.5GB,2000ns", 12.5e9, 2e-6},
        {"100Gbps,0s", 12.5e9, 0.0},
        {"1Mb,1ms", 125e3, 1e-3},
        {"2Tb,0.5us", 250e9, 0.5e-6},
        {"8b,1s", 1.0, 1.0},
        {"1kB/s,1us", 1e3, 1e-6},
    };
    static const char *const wrong[] = {
        "",         "100Gb",      "100,2us",   "100Gb,",    "100Gb,2",     "100Gb;2us",
        "0Gb,2us",  "-1Gb,2us",   "infGb,2us", "100Gx,2us", "100Gb,2us,",  "Gb,2us",
        "100G,2us", "100Gb,-2us", "nanGB,1us", "100Gb 2us", "1e999Gb,1us", "0x10Gb,1us"};
    fsdp_interconnect net;
    for (size_t i = 0; i < FSDP_LENGTH(right); i++) {
        ASSERT_OK(fsdp_scale_parse_interconnect(right[i].text, &net));
        ASSERT(fabs(net.bytes_per_s / right[i].bytes_per_s - 1.0) < 1e-12);
        ASSERT(fabs(net.latency_s - right[i].latency_s) < 1e-18);
    }
    for (size_t i = 0; i < FSDP_LENGTH(wrong); i++)
        ASSERT_ERROR(fsdp_scale_parse_interconnect(wrong[i], &net), FSDP_ERR_INVALID,
                     "--interconnect");
}

TEST(rates_and_parts_of_a_rank)
{
    static const char *const rates[] = {"10T", "10e12", "10000G", "10TFLOPS", "10TFLOP/s"};
    static const char *const wrong[] = {"", "0", "T", "-1T", "10X", "10TB", "inf", "nan", "1e400"};
    static const char *const parts[] = {"", "-1%", "101%", "1.01", "5%%", "x", "5 %", "nan"};
    double value;
    for (size_t i = 0; i < FSDP_LENGTH(rates); i++) {
        ASSERT_OK(fsdp_scale_parse_flops(rates[i], &value));
        ASSERT(fabs(value / 1e13 - 1.0) < 1e-12);
    }
    for (size_t i = 0; i < FSDP_LENGTH(wrong); i++)
        ASSERT_ERROR(fsdp_scale_parse_flops(wrong[i], &value), FSDP_ERR_INVALID,
                     "--flops-per-rank");
    ASSERT_OK(fsdp_scale_parse_straggler("5%", &value));
    ASSERT(fabs(value - 0.05) < 1e-15);
    ASSERT_OK(fsdp_scale_parse_straggler("0.05", &value));
    ASSERT(value == 0.05);
    ASSERT_OK(fsdp_scale_parse_straggler("0", &value));
    ASSERT(value == 0.0);
    for (size_t i = 0; i < FSDP_LENGTH(parts); i++)
        ASSERT_ERROR(fsdp_scale_parse_straggler(parts[i], &value), FSDP_ERR_INVALID, "--straggler");
}
