/**
 * @file
 * fsdp.c: fully sharded data parallel training. One include for everything public.
 */
#pragma once
#include <fsdp/autograd.h>
#include <fsdp/base.h>
#include <fsdp/batch.h>
#include <fsdp/ckpt.h>
#include <fsdp/comm.h>
#include <fsdp/data.h>
#include <fsdp/dtensor.h>
#include <fsdp/fsdp.h>
#include <fsdp/models.h>
#include <fsdp/nn.h>
#include <fsdp/optim.h>
#include <fsdp/tensor.h>
#include <fsdp/text.h>
