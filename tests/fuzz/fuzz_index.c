/* libFuzzer over the index of sharded safetensors: `make fuzz FUZZ_S=60`. The input is
 * model.safetensors.index.json in a folder with two shards, "a" of the tensors x and y, "b" of z;
 * an index that loads names each of them once, in its file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/ckpt.h>

#include "tests/fuzz/folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* A file of this header and `data_bytes` zeros. */
static void put_shard(const char *name, const char *header, size_t data_bytes)
{
    unsigned char text[256] = {(unsigned char)strlen(header)};
    memcpy(text + 8, header, strlen(header));
    fuzz_put(name, text, 8 + strlen(header) + data_bytes);
}

static void put_shards(void)
{
    put_shard("a",
              "{\"x\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
              "\"y\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[3,7]}}",
              7);
    put_shard("b", "{\"z\":{\"dtype\":\"BF16\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0);
}

static void check(const fsdp_checkpoint_reader *reader)
{
    static const char *const names[] = {"x", "y", "z"}, *const files[] = {"a", "a", "b"};
    size_t n = fsdp_checkpoint_count(reader);
    for (size_t i = 0; i < 3; i++) {
        const fsdp_checkpoint_entry *entry = fsdp_checkpoint_find(reader, names[i]);
        if (entry && strcmp(fsdp_path_name(entry->path), files[i]) != 0)
            abort();
        n -= entry != NULL;
    }
    if (n)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[64];
    fsdp_checkpoint_reader *reader;
    static bool has_shards;
    if (!has_shards)
        put_shards();
    has_shards = true;
    fuzz_put("model.safetensors.index.json", data, bytes);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", fuzz_folder());
    if (fsdp_checkpoint_open(path, &reader) == FSDP_OK) {
        check(reader);
        fsdp_checkpoint_close(reader);
    }
    return 0;
}
