/* The presets of Llama and its relatives: configurations of published models. */
#include <string.h>

#include "src/base/assert.h"
#include "src/models/llama_config.h"

typedef enum generation {
    LLAMA_2,
    TINY_LLAMA,
    LLAMA_3,
    LLAMA_3_1,
    LLAMA_3_2,
    MISTRAL_0_1,
    MISTRAL_0_3,
    QWEN_2_5,
    QWEN_3
} generation;

/* Values that all sizes of one generation of models (such as Llama 2) have in common. */
static const struct {
    fsdp_llama_family family;
    int64_t vocab_size, max_position_embeddings, bos_token_id, eos_token_id;
    /* rope_factor 0 means that rope_type is "default". Any other rope_factor means that rope_type
     * is "llama3". */
    double rope_theta, rope_factor;
    int64_t sliding_window;
    int64_t head_dim; /* 0: hidden_size / heads */
} generations[] = {
    [LLAMA_2] = {FSDP_LLAMA, 32000, 4096, 1, 2, 1e4, 0, 0, 0},
    [TINY_LLAMA] = {FSDP_LLAMA, 32000, 2048, 1, 2, 1e4, 0, 0, 0},
    [LLAMA_3] = {FSDP_LLAMA, 128256, 8192, 128000, 128001, 5e5, 0, 0, 0},
    [LLAMA_3_1] = {FSDP_LLAMA, 128256, 131072, 128000, 128001, 5e5, 8, 0, 0},
    [LLAMA_3_2] = {FSDP_LLAMA, 128256, 131072, 128000, 128001, 5e5, 32, 0, 0},
    [MISTRAL_0_1] = {FSDP_MISTRAL, 32000, 32768, 1, 2, 1e4, 0, 4096, 0},
    [MISTRAL_0_3] = {FSDP_MISTRAL, 32768, 32768, 1, 2, 1e6, 0, 0, 0},
    [QWEN_3] = {FSDP_QWEN3, 151936, 40960, 151643, 151645, 1e6, 0, 0, 128},
    [QWEN_2_5] = {FSDP_QWEN2, 151936, 32768, 151643, 151643, 1e6, 0, 0, 0},
};

static fsdp_rope_config rope_of(generation g)
{
    const double theta = generations[g].rope_theta, factor = generations[g].rope_factor;
    if (factor == 0)
        return (fsdp_rope_config){.type = FSDP_ROPE_DEFAULT, .theta = theta};
    return (fsdp_rope_config){.type = FSDP_ROPE_LLAMA3,
                              .theta = theta,
                              .factor = factor,
                              .low_freq_factor = 1.0,
                              .high_freq_factor = 4.0,
                              .original_max_position_embeddings = 8192};
}

/* The first two presets are this project's own models, for pretraining on small machines. The
 * values of the others are from the config.json files of meta-llama, TinyLlama, mistralai and Qwen
 * on Hugging Face. */
static const struct {
    const char *name;
    generation generation;
    int64_t hidden_size, intermediate_size, layers, heads, kv_heads;
    bool tied;
} presets[] = {
    {"llama-58m", LLAMA_2, 512, 1376, 8, 8, 8, false},
    {"llama-134m", LLAMA_2, 768, 2048, 12, 12, 12, false},
    {"TinyLlama-1.1B", TINY_LLAMA, 2048, 5632, 22, 32, 4, false},
    {"Llama-2-7b", LLAMA_2, 4096, 11008, 32, 32, 32, false},
    {"Llama-2-13b", LLAMA_2, 5120, 13824, 40, 40, 40, false},
    {"Llama-2-70b", LLAMA_2, 8192, 28672, 80, 64, 8, false},
    {"Meta-Llama-3-8B", LLAMA_3, 4096, 14336, 32, 32, 8, false},
    {"Meta-Llama-3-70B", LLAMA_3, 8192, 28672, 80, 64, 8, false},
    {"Llama-3.1-8B", LLAMA_3_1, 4096, 14336, 32, 32, 8, false},
    {"Llama-3.1-70B", LLAMA_3_1, 8192, 28672, 80, 64, 8, false},
    {"Llama-3.1-405B", LLAMA_3_1, 16384, 53248, 126, 128, 8, false},
    {"Llama-3.2-1B", LLAMA_3_2, 2048, 8192, 16, 32, 8, true},
    {"Llama-3.2-3B", LLAMA_3_2, 3072, 8192, 28, 24, 8, true},
    {"Mistral-7B-v0.1", MISTRAL_0_1, 4096, 14336, 32, 32, 8, false},
    {"Mistral-7B-v0.3", MISTRAL_0_3, 4096, 14336, 32, 32, 8, false},
    {"Qwen2.5-0.5B", QWEN_2_5, 896, 4864, 24, 14, 2, true},
    {"Qwen3-0.6B", QWEN_3, 1024, 3072, 28, 16, 8, true},
    {"Qwen3-8B", QWEN_3, 4096, 12288, 36, 32, 8, false},
};

/* Return true if `name` is a name of the preset `preset`. In `name`, the owner and the ending "-hf"
 * are optional: "meta-llama/Llama-2-7b-hf" means "Llama-2-7b". */
static bool names_preset(const char *name, const char *preset)
{
    static const char *const owners[] = {"meta-llama/", "TinyLlama/", "mistralai/", "Qwen/"};
    for (size_t i = 0; i < FSDP_LENGTH(owners); i++)
        if (strncmp(name, owners[i], strlen(owners[i])) == 0)
            name += strlen(owners[i]);
    const size_t n = strlen(preset);
    return strncmp(name, preset, n) == 0 && (!name[n] || strcmp(name + n, "-hf") == 0);
}

fsdp_status fsdp_llama_config_find_preset(fsdp_llama_family family, const char *name,
                                          fsdp_llama_config *config)
{
    size_t i = 0;
    while (i < FSDP_LENGTH(presets) && (generations[presets[i].generation].family != family ||
                                        !names_preset(name, presets[i].name)))
        i++;
    if (i == FSDP_LENGTH(presets))
        return FSDP_ERR_NOT_FOUND;
    const generation g = presets[i].generation;
    *config = (fsdp_llama_config){
        .family = family,
        .vocab_size = generations[g].vocab_size,
        .hidden_size = presets[i].hidden_size,
        .intermediate_size = presets[i].intermediate_size,
        .num_hidden_layers = presets[i].layers,
        .num_attention_heads = presets[i].heads,
        .num_key_value_heads = presets[i].kv_heads,
        .head_dim = generations[g].head_dim ? generations[g].head_dim
                                            : presets[i].hidden_size / presets[i].heads,
        .max_position_embeddings = generations[g].max_position_embeddings,
        .sliding_window = generations[g].sliding_window,
        .rope = rope_of(g),
        .rms_norm_eps = family == FSDP_QWEN2 || family == FSDP_QWEN3 ? 1e-6 : 1e-5,
        .initializer_range = 0.02,
        .tie_word_embeddings = presets[i].tied,
        .bos_token_id = generations[g].bos_token_id,
        .eos_token_id = generations[g].eos_token_id,
        .pad_token_id = -1,
        .dtype = FSDP_DTYPE_F32,
    };
    return FSDP_OK;
}
