/* See decompress.h. LZ4 needs liblz4, and ZSTD needs libzstd. */
#include "src/data/arrow/decompress.h"

#include <string.h>

#ifdef FSDP_HAVE_LZ4
#include <lz4frame.h>
#endif
#ifdef FSDP_HAVE_ZSTD
#include <zstd.h>
#endif

#include "src/base/alloc.h"

enum {
    /* LZ4 compresses a block to no less than 1/255 of its size. A ZSTD block has at most 128 KiB of
     * contents and needs at least four bytes, even if all bytes of the contents are equal. So a
     * buffer that claims to have more contents than these ratios allow is damaged. */
    LZ4_RATIO = 255,
    ZSTD_RATIO = (128 << 10) / 4,
    LENGTH_BYTES = 8
};

static fsdp_status damaged(const char *codec, const char *what)
{
    return fsdp_error(FSDP_ERR_FORMAT, "%s: %s", codec, what);
}

#ifdef FSDP_HAVE_LZ4
static fsdp_status unpack_lz4_in(LZ4F_dctx *context, const unsigned char *from, size_t from_bytes,
                                 unsigned char *to, size_t to_bytes)
{
    size_t at = 0, made = 0, left = 1;
    while (at < from_bytes && left != 0) {
        size_t used = from_bytes - at, written = to_bytes - made;
        left = LZ4F_decompress(context, to + made, &written, from + at, &used, NULL);
        if (LZ4F_isError(left))
            return damaged("LZ4", LZ4F_getErrorName(left));
        at += used;
        made += written;
        if (used == 0 && written == 0)
            break;
    }
    if (made != to_bytes || left != 0)
        return damaged("LZ4", "the contents do not have the length that the buffer says");
    return FSDP_OK;
}

static fsdp_status unpack_lz4(const unsigned char *from, size_t from_bytes, unsigned char *to,
                              size_t to_bytes)
{
    LZ4F_dctx *context = NULL;
    if (LZ4F_isError(LZ4F_createDecompressionContext(&context, LZ4F_VERSION)))
        return fsdp_error_nomem();
    const fsdp_status status = unpack_lz4_in(context, from, from_bytes, to, to_bytes);
    LZ4F_freeDecompressionContext(context);
    return status;
}
#else
static fsdp_status unpack_lz4(const unsigned char *from, size_t from_bytes, unsigned char *to,
                              size_t to_bytes)
{
    (void)from;
    (void)from_bytes;
    (void)to;
    (void)to_bytes;
    return fsdp_error(
        FSDP_ERR_UNSUPPORTED,
        "compressed with LZ4: this build has no lz4 (liblz4-dev; 'make deps' installs "
        "it)");
}
#endif

#ifdef FSDP_HAVE_ZSTD
static fsdp_status unpack_zstd(const unsigned char *from, size_t from_bytes, unsigned char *to,
                               size_t to_bytes)
{
    const size_t made = ZSTD_decompress(to, to_bytes, from, from_bytes);
    if (ZSTD_isError(made))
        return damaged("ZSTD", ZSTD_getErrorName(made));
    if (made != to_bytes)
        return damaged("ZSTD", "the contents do not have the length that the buffer says");
    return FSDP_OK;
}
#else
static fsdp_status unpack_zstd(const unsigned char *from, size_t from_bytes, unsigned char *to,
                               size_t to_bytes)
{
    (void)from;
    (void)from_bytes;
    (void)to;
    (void)to_bytes;
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "compressed with ZSTD: this build has no zstd (libzstd-dev; 'make deps' "
                      "installs it)");
}
#endif

fsdp_status fsdp_arrow_decompress(fsdp_arrow_codec codec, fsdp_arrow_buffer buffer,
                                  size_t max_bytes, fsdp_arrow_buffer *out, void **owned)
{
    int64_t length;
    *owned = NULL;
    if (buffer.bytes == 0) {
        *out = buffer;
        return FSDP_OK;
    }
    if (buffer.bytes < LENGTH_BYTES)
        return damaged("compressed buffer", "too short for its length");
    /* Integers of the file and of this machine are little-endian. */
    memcpy(&length, buffer.data, sizeof length);
    const unsigned char *from = buffer.data + LENGTH_BYTES;
    const size_t bytes = buffer.bytes - LENGTH_BYTES;
    const size_t ratio = codec == FSDP_ARROW_LZ4_FRAME ? LZ4_RATIO : ZSTD_RATIO;
    if (length == -1 || length == 0) {
        *out = (fsdp_arrow_buffer){from, length ? bytes : 0};
        return FSDP_OK;
    }
    if (length < 0 || (uint64_t)length > max_bytes || (uint64_t)length / ratio > bytes)
        return fsdp_error(FSDP_ERR_FORMAT, "a compressed buffer of %zu bytes with %lld bytes",
                          bytes, (long long)length);
    unsigned char *memory = fsdp_calloc((size_t)length, 1);
    if (!memory)
        return FSDP_ERR_NOMEM;
    const fsdp_status status = codec == FSDP_ARROW_LZ4_FRAME
                                   ? unpack_lz4(from, bytes, memory, (size_t)length)
                                   : unpack_zstd(from, bytes, memory, (size_t)length);
    if (status != FSDP_OK) {
        fsdp_free(memory);
        return status;
    }
    *out = (fsdp_arrow_buffer){memory, (size_t)length};
    *owned = memory;
    return FSDP_OK;
}
