/* Writes random_states_<rank>.pkl of Accelerate. It contains the states of three Mersenne Twisters
 * (in Python, NumPy and torch) after accelerate.utils.set_seed(seed).
 *
 * M. Matsumoto, T. Nishimura, "Mersenne Twister" (1998), and their mt19937ar.c. NumPy and PyTorch
 * call init_genrand() of that file, and Python calls init_by_array(). */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/state_dict/accelerate.h"

enum {
    WORDS = 624,
    TORCH_BYTES = 5056 /* size of CPUGeneratorImplState */
};

static void init_genrand(uint32_t state[WORDS], uint32_t seed)
{
    state[0] = seed;
    for (uint32_t i = 1; i < WORDS; i++)
        state[i] = 1812433253u * (state[i - 1] ^ (state[i - 1] >> 30)) + i;
}

static uint32_t mixed(const uint32_t state[WORDS], int i, uint32_t factor)
{
    return state[i] ^ ((state[i - 1] ^ (state[i - 1] >> 30)) * factor);
}

/* Return the index that follows i. After the last index, set word 0 to the last word and return 1,
 * as mt19937ar.c does. */
static int next_index(uint32_t state[WORDS], int i)
{
    if (i + 1 < WORDS)
        return i + 1;
    state[0] = state[WORDS - 1];
    return 1;
}

static void init_by_array(uint32_t state[WORDS], const uint32_t *key, int n)
{
    int i = 1;
    init_genrand(state, 19650218u);
    for (int k = 0; k < WORDS; k++) {
        state[i] = mixed(state, i, 1664525u) + key[k % n] + (uint32_t)(k % n);
        i = next_index(state, i);
    }
    for (int k = 0; k < WORDS - 1; k++) {
        state[i] = mixed(state, i, 1566083941u) - (uint32_t)i;
        i = next_index(state, i);
    }
    state[0] = 0x80000000u;
}

static fsdp_plain integer(int64_t value)
{
    return (fsdp_plain){.kind = FSDP_PLAIN_INT, .as.integer = value};
}

static void put_words(fsdp_plain *items, const uint32_t state[WORDS])
{
    for (int i = 0; i < WORDS; i++)
        items[i] = integer(state[i]);
}

/* Put what random.getstate() returns: (3, (words..., index), None). */
static fsdp_status put_python(fsdp_state_dict *dict, fsdp_plain *items, uint64_t seed)
{
    const fsdp_state_key key = {.name = "random_state"};
    const uint32_t parts[] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t state[WORDS];
    init_by_array(state, parts, parts[1] ? 2 : 1);
    put_words(items, state);
    items[WORDS] = integer(WORDS);
    const fsdp_plain three[] = {integer(3),
                                {.kind = FSDP_PLAIN_TUPLE, .as.list = {items, WORDS + 1}},
                                {.kind = FSDP_PLAIN_NONE}};
    return fsdp_state_dict_put_value(
        dict, &key, 1, &(fsdp_plain){.kind = FSDP_PLAIN_TUPLE, .as.list = {three, 3}});
}

/* Put the tuple that numpy.random.get_state() returns, but with a list in place of the array in the
 * tuple. numpy.random.set_state() accepts a list, too. */
static fsdp_status put_numpy(fsdp_state_dict *dict, fsdp_plain *items, uint64_t seed)
{
    const fsdp_state_key key = {.name = "numpy_random_seed"};
    uint32_t state[WORDS];
    init_genrand(state, (uint32_t)seed);
    put_words(items, state);
    const fsdp_plain five[] = {{.kind = FSDP_PLAIN_STR, .as.text = "MT19937"},
                               {.kind = FSDP_PLAIN_LIST, .as.list = {items, WORDS}},
                               integer(WORDS),
                               integer(0),
                               {.kind = FSDP_PLAIN_FLOAT}};
    return fsdp_state_dict_put_value(dict, &key, 1,
                                     &(fsdp_plain){.kind = FSDP_PLAIN_TUPLE, .as.list = {five, 5}});
}

/* Put a tensor with the bytes that torch.get_rng_state() returns. They are the seed, the fields
 * `left` and `seeded`, the index of the next word, the words (64 bits each), and the cached normal
 * numbers. No normal number is cached, so the last part is zeros. */
static fsdp_status put_torch(fsdp_state_dict *dict, fsdp_device *device, uint64_t seed)
{
    const fsdp_state_key key = {.name = "torch_manual_seed"};
    const uint32_t left_and_seeded[] = {1, 1};
    unsigned char blob[TORCH_BYTES] = {0};
    uint32_t state[WORDS];
    fsdp_tensor *tensor;
    init_genrand(state, (uint32_t)seed);
    memcpy(blob, &seed, 8);
    memcpy(blob + 8, left_and_seeded, 8);
    for (size_t i = 0; i < WORDS; i++)
        memcpy(blob + 24 + 8 * i, &state[i], 4);
    FSDP_TRY(fsdp_tensor_from_data(device, FSDP_DTYPE_U8, 1, (int64_t[]){TORCH_BYTES}, blob,
                                   FSDP_TAG_DATA, &tensor));
    fsdp_status status = fsdp_state_dict_put_tensor(dict, &key, 1, tensor);
    fsdp_tensor_release(tensor);
    return status;
}

static fsdp_status put_all(fsdp_state_dict *dict, fsdp_device *device, uint64_t seed)
{
    const fsdp_state_key key = {.name = "step"};
    const fsdp_plain step = integer(0);
    fsdp_plain *items = fsdp_calloc(WORDS + 1, sizeof *items);
    fsdp_status status = items ? put_python(dict, items, seed) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = put_numpy(dict, items, seed);
    if (status == FSDP_OK)
        status = put_torch(dict, device, seed);
    if (status == FSDP_OK)
        status = fsdp_state_dict_put_value(dict, &key, 1, &step);
    fsdp_free(items);
    return status;
}

fsdp_status fsdp_random_states_write(const char *dir, int rank, uint64_t seed)
{
    char name[64];
    fsdp_device *device = NULL;
    fsdp_state_dict *dict = NULL;
    snprintf(name, sizeof name, "random_states_%d.pkl", rank);
    char *path = fsdp_path_join(dir, name);
    fsdp_status status = path ? fsdp_device_create(NULL, &device) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_state_dict_create(&dict);
    if (status == FSDP_OK)
        status = put_all(dict, device, seed);
    if (status == FSDP_OK)
        status = fsdp_torch_save(dict, path, NULL);
    fsdp_state_dict_destroy(dict);
    fsdp_device_destroy(device);
    fsdp_free(path);
    return status;
}
