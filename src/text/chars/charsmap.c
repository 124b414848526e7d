#include "src/text/chars/charsmap.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/text/chars/utf8.h"

struct fsdp_charsmap {
    /* [count]: the units of the double-array trie, in the format of the library Darts */
    uint32_t *units;
    size_t count;
    char *replacements; /* [bytes + 1]: NUL-terminated texts; the last byte is NUL */
    size_t bytes;
};

/* The functions below read the bit fields of a unit of the double-array trie. */
static uint32_t unit_offset(uint32_t unit)
{
    return (unit >> 10) << ((unit & (1U << 9)) >> 6);
}

static uint32_t unit_label(uint32_t unit)
{
    return unit & ((1U << 31) | 0xFF);
}

static bool unit_has_leaf(uint32_t unit)
{
    return (unit >> 8) & 1;
}

static uint32_t read_u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static fsdp_status fill(fsdp_charsmap *map, const unsigned char *p)
{
    map->units = fsdp_calloc(map->count, sizeof *map->units);
    map->replacements = fsdp_calloc(map->bytes + 1, 1);
    if (!map->units || !map->replacements)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < map->count; i++)
        map->units[i] = read_u32(p + 4 + 4 * i);
    memcpy(map->replacements, p + 4 + 4 * map->count, map->bytes);
    const size_t valid = fsdp_utf8_valid_length(map->replacements, map->bytes);
    if (valid < map->bytes)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "precompiled_charsmap: the replacements are not UTF-8 at byte %zu",
                          valid);
    return FSDP_OK;
}

fsdp_status fsdp_charsmap_create(const void *bytes, size_t count, fsdp_charsmap **out)
{
    const unsigned char *p = bytes;
    const size_t trie = count >= 4 ? read_u32(p) : 0;
    if (count < 4 || trie > count - 4 || trie < 4 || trie % 4)
        return fsdp_error(
            FSDP_ERR_FORMAT,
            "precompiled_charsmap: %zu bytes that do not begin with the size of a trie", count);
    fsdp_charsmap *map = fsdp_calloc(1, sizeof *map);
    if (!map)
        return FSDP_ERR_NOMEM;
    map->count = trie / 4;
    map->bytes = count - 4 - trie;
    fsdp_status status = fill(map, p);
    if (status != FSDP_OK) {
        fsdp_charsmap_destroy(map);
        return status;
    }
    *out = map;
    return FSDP_OK;
}

void fsdp_charsmap_destroy(fsdp_charsmap *map)
{
    if (!map)
        return;
    fsdp_free(map->units);
    fsdp_free(map->replacements);
    fsdp_free(map);
}

/* Return the value of a base64 digit, or -1. */
static int digit_value(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

fsdp_status fsdp_charsmap_decode(const char *base64, fsdp_charsmap **out)
{
    size_t length = strlen(base64), n = 0;
    while (length && base64[length - 1] == '=')
        length--;
    unsigned char *bytes = fsdp_calloc(length + 1, 1);
    if (!bytes)
        return FSDP_ERR_NOMEM;
    uint32_t group = 0;
    int bits = 0;
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < length && status == FSDP_OK; i++) {
        const int value = digit_value(base64[i]);
        if (value < 0)
            status =
                fsdp_error(FSDP_ERR_FORMAT, "precompiled_charsmap: not base64 at character %zu", i);
        group = (group << 6 | (uint32_t)value) & 0xFFFFFF;
        bits += 6;
        if (bits >= 8)
            bytes[n++] = (unsigned char)(group >> (bits -= 8));
    }
    if (status == FSDP_OK)
        status = fsdp_charsmap_create(bytes, n, out);
    fsdp_free(bytes);
    return status;
}

const char *fsdp_charsmap_find(const fsdp_charsmap *map, const char *text, size_t length,
                               size_t *replaced)
{
    size_t at = unit_offset(map->units[0]);
    for (size_t i = 0; i < length && text[i]; i++) {
        const unsigned char byte = (unsigned char)text[i];
        at ^= byte;
        if (at >= map->count || unit_label(map->units[at]) != byte)
            return NULL;
        const uint32_t unit = map->units[at];
        at ^= unit_offset(unit);
        if (!unit_has_leaf(unit))
            continue;
        const size_t value = at < map->count ? map->units[at] & 0x7FFFFFFF : SIZE_MAX;
        if (value > map->bytes || ((unsigned char)map->replacements[value] & 0xC0) == 0x80)
            return NULL;
        *replaced = strlen(map->replacements + value);
        return map->replacements + value;
    }
    return NULL;
}
