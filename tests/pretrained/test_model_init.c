/* Weights drawn with --from-config have the distributions of each model's _init_weights() in
 * transformers, and the same bits on any number of ranks. */
#include <fsdp/dtensor.h>

#include "src/base/assert.h"
#include "src/models/model_type.h"
#include "src/nn/module.h"
#include "src/pretrained/model.h"
#include "tests/test.h"
#include "tests/train/odd_models.h"

/* Parameters whose name has this ending are N(mean, std); std 0: mean everywhere. */
typedef struct rule {
    const char *ending;
    double mean, std;
} rule;

typedef struct init_case {
    const fsdp_model_config *config;
    const rule *rules;  /* the first match counts; the last has ending "", which matches all */
    const char *padded; /* the embedding whose row 0 is padding and therefore 0; NULL: none */
} init_case;

static const rule t5_rules[] = {
    {"layer_norm.weight", 0.7, 0}, /* initializer_factor */
    {"shared.weight", 0, 0.7},
    {"lm_head.weight", 0, 0.7},
    {".q.weight", 0, 0.7 / 14.69693845669907},  /* sqrt(24 * 9) */
    {".o.weight", 0, 0.7 / 6.708203932499369},  /* sqrt(5 * 9) */
    {".wo.weight", 0, 0.7 / 6.324555320336759}, /* sqrt(40) */
    {"", 0, 0.7 / 4.898979485566356},           /* k, v, wi, relative_attention_bias: sqrt(24) */
};

/* Llama, Mistral, Qwen2 */
static const rule llama_rules[] = {
    {"norm.weight", 1, 0},
    {".bias", 0, 0},
    {"", 0, 0.03},
};

static const rule gpt2_rules[] = {
    {"ln_1.weight", 1, 0},
    {"ln_2.weight", 1, 0},
    {"ln_f.weight", 1, 0},
    {".bias", 0, 0},
    {"c_proj.weight", 0, 0.05 / 2.449489742783178}, /* sqrt(2 * 3): two residual paths a layer */
    {"", 0, 0.05},
};

static const rule bert_rules[] = {
    {"LayerNorm.weight", 1, 0},
    {".bias", 0, 0},
    {"", 0, 0.04},
};

static const init_case cases[] = {
    {&odd_t5, t5_rules, NULL},
    {&odd_llama, llama_rules, "model.embed_tokens.weight"},
    {&odd_mistral, llama_rules, "model.embed_tokens.weight"},
    {&odd_qwen2, llama_rules, "model.embed_tokens.weight"},
    {&odd_gpt2, gpt2_rules, NULL},
    {&odd_bert, bert_rules, "bert.embeddings.word_embeddings.weight"},
};

static const rule *rule_of(const init_case *c, const char *name)
{
    for (const rule *r = c->rules;; r++) {
        size_t n = strlen(name), m = strlen(r->ending);
        if (n >= m && strcmp(name + n - m, r->ending) == 0)
            return r;
    }
}

/* Mean and variance of n draws are within five standard errors of the rule's. */
static void check_values(fsdp_test *t, const char *name, const rule *r, const float *values,
                         int64_t n)
{
    double sum = 0, squares = 0, count = (double)n;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)values[i] - r->mean;
        sum += d;
        squares += d * d;
        if (r->std == 0 && fabs(d) > 1e-7)
            FAIL("%s[%lld] is %g, not %g", name, (long long)i, (double)values[i], r->mean);
    }
    double variance = r->std * r->std;
    if (fabs(sum / count) > 5 * r->std / sqrt(count) + 1e-7)
        FAIL("%s: mean %g, not %g", name, r->mean + sum / count, r->mean);
    if (fabs(squares / count - variance) > 5 * variance * sqrt(2 / count) + 1e-12)
        FAIL("%s: standard deviation %g, not %g", name, sqrt(squares / count), r->std);
}

static void check_parameter(fsdp_test *t, const init_case *c, const fsdp_named_parameter *p)
{
    const float *values = fsdp_tensor_data(p->parameter->local);
    int64_t n = fsdp_parameter_numel(p->parameter);
    const int64_t width = n / p->parameter->shape[0];
    if (c->padded && strcmp(p->name, c->padded) == 0) {
        const rule zero = {.ending = ""};
        check_values(t, p->name, &zero, values, width);
        CHECK_HERE();
        values += width;
        n -= width;
    }
    check_values(t, p->name, rule_of(c, p->name), values, n);
}

TEST(drawn_weights_have_the_distribution_of_transformers)
{
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        fsdp_model *m;
        fsdp_parameter_list list;
        ASSERT_OK(fsdp_model_open(&(fsdp_model_options){.config = cases[i].config, .seed = 3}, NULL,
                                  device, &m));
        ASSERT_OK(fsdp_module_parameters(m->module, false, &list));
        for (size_t k = 0; k < list.n; k++) {
            check_parameter(t, &cases[i], &list.items[k]);
            CHECK_HERE();
        }
        fsdp_parameter_list_free(&list);
        fsdp_model_close(m);
    }
    fsdp_device_destroy(device);
}

/* Element i of a parameter is a function of seed, name and i. */
static void check_same_bits(fsdp_test *t)
{
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        fsdp_model_options options = {.config = cases[i].config, .seed = 11};
        fsdp_model *sharded, *alone;
        fsdp_parameter_list x, y;
        ASSERT_OK(fsdp_model_open(&options, t->group, device, &sharded));
        ASSERT_OK(fsdp_model_open(&options, NULL, device, &alone));
        ASSERT_OK(fsdp_module_parameters(sharded->module, false, &x));
        ASSERT_OK(fsdp_module_parameters(alone->module, false, &y));
        ASSERT_INT(x.n, y.n);
        for (size_t k = 0; k < x.n; k++) {
            fsdp_tensor *full;
            const fsdp_tensor *whole = y.items[k].parameter->local;
            ASSERT_OK(fsdp_full_tensor(x.items[k].parameter->local, &full));
            if (memcmp(fsdp_tensor_data(full), fsdp_tensor_data(whole),
                       (size_t)fsdp_tensor_numel(whole) * sizeof(float)) != 0)
                FAIL("%s: %s differs", cases[i].config->type->name, x.items[k].name);
            fsdp_tensor_release(full);
        }
        fsdp_parameter_list_free(&x);
        fsdp_parameter_list_free(&y);
        fsdp_model_close(alone);
        fsdp_model_close(sharded);
    }
    fsdp_device_destroy(device);
}

TEST_RANKS(drawn_weights_are_the_same_on_2_ranks, 2)
{
    check_same_bits(t);
}
TEST_RANKS(drawn_weights_are_the_same_on_3_ranks, 3)
{
    check_same_bits(t);
}
