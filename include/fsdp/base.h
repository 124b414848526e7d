/**
 * @file
 * Declarations that every other header needs: status codes and messages, data types, version.
 *
 * Every function that can fail returns fsdp_status. On failure it sets the message that
 * fsdp_last_error() returns.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FSDP_VERSION "0.1.0"

#if defined(__GNUC__)
#define FSDP_API __attribute__((visibility("default")))
#define FSDP_MUST_CHECK __attribute__((warn_unused_result))
#define FSDP_PRINTF(format_index, first_arg)                                                       \
    __attribute__((format(printf, format_index, first_arg)))
#else
#define FSDP_API
#define FSDP_MUST_CHECK
#define FSDP_PRINTF(format_index, first_arg)
#endif

/** Status codes. Each code shows what a caller can do about the failure; the message says what
 * happened. */
typedef enum fsdp_status {
    FSDP_OK = 0,
    FSDP_ERR_INVALID,     /**< an argument, a flag or a shape that the caller passed is wrong */
    FSDP_ERR_NOT_FOUND,   /**< a file, tensor, module or key does not exist */
    FSDP_ERR_FORMAT,      /**< bytes from outside (a file, a config, a peer) are malformed */
    FSDP_ERR_UNSUPPORTED, /**< the request is well-formed, but this build cannot do it */
    FSDP_ERR_IO,          /**< the operating system refused (disk full, permission) */
    FSDP_ERR_NOMEM,       /**< an allocation failed or would exceed a limit */
    FSDP_ERR_STATE,   /**< functions were called in the wrong order, e.g. a resharded parameter was
                         read */
    FSDP_ERR_COMM,    /**< a peer failed, or did not make the same calls as this rank; the group can
                         only be destroyed */
    FSDP_ERR_TIMEOUT, /**< a peer did not answer in time; the group can only be destroyed */
    FSDP_ERR_NUMERIC, /**< NaN or infinity where training cannot continue */
} fsdp_status;

/** Return the name of a status without its prefix, e.g. "INVALID"; static storage. */
FSDP_API const char *fsdp_status_name(fsdp_status status);

/**
 * Return the message of the last failure on the calling thread; "" if there was none. The pointer
 * is valid until the next failure on this thread.
 */
FSDP_API const char *fsdp_last_error(void);

/**
 * Format this thread's message, of at most 1023 bytes, and return `status`. Does not allocate.
 * Every error is created by a call of this function: `return fsdp_error(FSDP_ERR_INVALID, "...")`.
 */
FSDP_API FSDP_PRINTF(2, 3) fsdp_status fsdp_error(fsdp_status status, const char *format, ...);

/** Put the formatted text and ": " before this thread's message. The text says where the failure
 * occurred, e.g. in which file. No effect if `status` is FSDP_OK. */
FSDP_API FSDP_PRINTF(2, 3) void fsdp_error_context(fsdp_status status, const char *format, ...);

/** If `expression` is not FSDP_OK, return its status from the calling function. */
#define FSDP_TRY(expression)                                                                       \
    do {                                                                                           \
        fsdp_status fsdp_try_status_ = (expression);                                               \
        if (fsdp_try_status_ != FSDP_OK)                                                           \
            return fsdp_try_status_;                                                               \
    } while (0)

/** Element types, named as in torch. */
typedef enum fsdp_dtype {
    FSDP_DTYPE_F32,  /**< float32 */
    FSDP_DTYPE_BF16, /**< bfloat16: the upper 16 bits of a float32 */
    FSDP_DTYPE_F16,  /**< float16 (IEEE binary16) */
    FSDP_DTYPE_F64,  /**< float64 */
    FSDP_DTYPE_I64,  /**< int64 */
    FSDP_DTYPE_I32,  /**< int32 */
    FSDP_DTYPE_U8,   /**< uint8 */
    FSDP_DTYPE_COUNT
} fsdp_dtype;

/** Return the size of one element in bytes. */
FSDP_API size_t fsdp_dtype_size(fsdp_dtype dtype);
/** Return PyTorch's name of the dtype: "float32", "bfloat16", ...; static storage. */
FSDP_API const char *fsdp_dtype_name(fsdp_dtype dtype);
/** Return true if `dtype` is float32, bfloat16, float16 or float64. */
FSDP_API bool fsdp_dtype_is_floating(fsdp_dtype dtype);
/**
 * Set *dtype to the dtype called `name`. Accepts the usual names: "bfloat16", "torch.bfloat16",
 * "bf16", "BF16", "fp32", "half", ...
 * @return FSDP_ERR_INVALID for an unknown name; the message lists the known names.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dtype_from_name(const char *name, fsdp_dtype *dtype);

#ifdef __cplusplus
}
#endif
