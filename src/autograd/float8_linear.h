/* A linear layer whose three products have float8 operands, as in torchao's Float8Linear.
 *
 * Note [Float8 products]. A product has four steps. The scales of both operands are computed from
 * their largest magnitudes. Both operands are cast (Note [Float8 scales] in src/base/float8.h). The
 * codes are multiplied, with sums in float32. The sums are divided by both scales. So a value is
 * rounded only when it is cast and when the result is stored.
 *
 * Operands are the values of the codes in bfloat16, or the codes themselves on a card whose tensor
 * cores multiply float8: Note [Float8 codes on a card] in src/kernels/cuda/gemm_float8.c. k is the
 * dimension that is summed over. With codes, k must be the last dimension of both operands, so a
 * matrix whose rows are summed over is stored transposed. A product has codes if n and k are
 * multiples of FSDP_FLOAT8_MULTIPLE and the device accepts the shape. In the gradient of a weight,
 * k is the number of rows of x, which need not be such a multiple. So zeros are appended to the
 * rows of both transposed matrices. Whether a product has codes depends on the shape and on the
 * card, not on values or addresses, so all ranks decide alike. In the recipe tensorwise, a product
 * of codes without a bias also divides by the scales, so it has no sums to store.
 *
 * The scales of the recipes, where T is the number of rows of x, and D and N are the numbers of
 * features in and out. gw_hp is short for rowwise_with_gw_hp. Operands with the mark (e5m2) are
 * cast to that format, all others to e4m3fn:
 *
 *   product           recipe              left operand          right operand
 *   y = x w^T         tensorwise          x: one                w: one
 *                     rowwise, gw_hp      x: one for each t     w: one for each n
 *   dx = dy w         tensorwise          dy (e5m2): one        w: one
 *                     rowwise             dy: one for each t    w: one for each d
 *                     gw_hp               dy: one for each t    w: one
 *   dw = dy^T x       tensorwise          dy (e5m2): one        x: one
 *                     rowwise             dy: one for each n    x: one for each d
 *                     gw_hp               the product of dy and x themselves
 *
 * x is cast again in backward, as in torchao. Keeping the codes from forward would save the cast,
 * but usually other operations keep x anyway, so the codes would be additional memory. */
#pragma once
#include "src/autograd/autograd.h"

/* Compute what fsdp_float8_linear() computes. But w may also be codes in e4m3fn: [N, D] of uint8.
 * In that case, w_scale [1] float32 is the factor by which w was multiplied before it was cast to
 * the codes, and the recipe must be FSDP_FLOAT8_TENSORWISE. If w is not codes, w_scale is NULL. */
fsdp_tensor *fsdp_float8_linear_of(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w,
                                   fsdp_tensor *w_scale, fsdp_tensor *bias,
                                   fsdp_float8_recipe recipe);
