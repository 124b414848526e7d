/* relative_position_bias: see gradcheck.h for what each op_check tests. Buckets are compared with
 * those of transformers. */
#include "src/base/alloc.h"
#include "src/base/json.h"
#include "src/tensor/tensor.h"
#include "tests/autograd/gradcheck.h"

static void compare_buckets(fsdp_test *t, fsdp_json_node config, int64_t first, const char *side)
{
    int64_t buckets, max_distance, *expected;
    size_t count;
    ASSERT_OK(fsdp_json_get_i64(config, "num_buckets", 1, 1000, &buckets));
    ASSERT_OK(fsdp_json_get_i64(config, "max_distance", 1, 10000, &max_distance));
    ASSERT_OK(fsdp_json_get_i64s(config, side, 0, buckets - 1, &expected, &count));
    ASSERT_INT(count, 401);
    for (size_t i = 0; i < count && !t->failed; i++) {
        int64_t distance = first + (int64_t)i;
        int64_t got =
            fsdp_relative_position_bucket(distance, side[0] == 'e', buckets, max_distance);
        if (got != expected[i])
            fsdp_test_fail(t, __FILE__, __LINE__, "%s: distance %lld has bucket %lld, not %lld",
                           side, (long long)distance, (long long)got, (long long)expected[i]);
    }
    fsdp_free(expected);
}

TEST(buckets_are_those_of_transformers)
{
    static const char *const paths[] = {"golden/t5_v1_0/relative_buckets.json",
                                        "golden/t5_v1_1/relative_buckets.json"};
    for (int i = 0; i < 4; i++) {
        fsdp_json *doc;
        fsdp_json_node config;
        int64_t first;
        ASSERT_OK(fsdp_json_read(fsdp_test_path(paths[i / 2]), &doc));
        ASSERT_OK(fsdp_json_get_i64(fsdp_json_root(doc), "first_distance", -1000, 0, &first));
        ASSERT_OK(fsdp_json_get_object(fsdp_json_root(doc), i % 2 ? "model" : "default", &config));
        compare_buckets(t, config, first, "encoder");
        compare_buckets(t, config, first, "decoder");
        fsdp_json_destroy(doc);
    }
}

typedef struct bias_arg {
    int64_t span, max_distance;
    bool bidirectional;
} bias_arg;

static fsdp_tensor *run_bias(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    const bias_arg *a = arg;
    return fsdp_relative_position_bias(s, in[0], a->span, a->max_distance, a->bidirectional);
}

static void naive_bias(const op_case *c, const double *const *in, double *out)
{
    const bias_arg *a = c->arg;
    const int64_t buckets = op_size(c, 0, 0), heads = op_size(c, 0, 1);
    for (int64_t h = 0; h < heads; h++)
        for (int64_t distance = 1 - a->span; distance < a->span; distance++) {
            int64_t bucket =
                fsdp_relative_position_bucket(distance, a->bidirectional, buckets, a->max_distance);
            out[h * (2 * a->span - 1) + distance + a->span - 1] = in[0][bucket * heads + h];
        }
}

TEST(position_bias_equals_loops_and_differences)
{
    static const bias_arg args[] = {{30, 12, true}, {30, 12, false}, {1, 12, true}};
    for (int i = 0; i < 3; i++) {
        op_check(t, &(op_case){.name = "relative_position_bias",
                               .run = run_bias,
                               .naive = naive_bias,
                               .arg = &args[i],
                               .n_in = 1,
                               .in = {{2, {8, 3}}}});
        CHECK_HERE();
    }
}

TEST(position_bias_names_what_does_not_fit)
{
    static const struct {
        int64_t buckets;
        bias_arg arg;
        const char *message;
    } cases[] = {
        {8, {0, 12, true}, "relative_position_bias: span is 0"},
        {3, {5, 12, true}, "weight is [3, 2], not [buckets, H] with at least 4 buckets"},
        {8, {5, 2, true}, "max_distance is 2, not above the 2 exact buckets"},
        {8, {5, 4, false}, "max_distance is 4, not above the 4 exact buckets"},
    };
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fsdp_scope *s;
        ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
        fsdp_tensor *w = op_random_tensor(t, device, FSDP_DTYPE_F32, 2,
                                          (const int64_t[]){cases[i].buckets, 2}, 1);
        ASSERT(!run_bias(s, &w, &cases[i].arg));
        ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, cases[i].message);
        fsdp_scope_close(s);
        fsdp_tensor_release(w);
    }
    fsdp_device_destroy(device);
}
