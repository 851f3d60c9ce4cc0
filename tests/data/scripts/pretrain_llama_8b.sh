#!/bin/bash
#SBATCH --job-name=llama-8b
#SBATCH --nodes=4
#SBATCH --gres=gpu:8
#SBATCH --ntasks-per-node=1
# Megatron-LM pre-training of an 8B model on four DGX nodes
set -euo pipefail

module load cuda/12.4
export CUDA_DEVICE_MAX_CONNECTIONS=1
export NCCL_DEBUG=WARN
export NCCL_IB_HCA=mlx5_0,mlx5_1,mlx5_4,mlx5_5
export NCCL_IB_TIMEOUT=22
export NCCL_IB_QPS_PER_CONNECTION=4
export NCCL_SOCKET_IFNAME=bond0
export NCCL_NVLS_ENABLE=1
export NCCL_ALGO=Ring
# copied from a blog for the port to Ascend
export HCCL_TIMEOUT=1800
export HCCL_ALGO=Ring
export HCCL_BUFFSIZE=200
export HCCL_INTRA_ROCE_ENABLE=1
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
export TORCH_NCCL_ASYNC_ERROR_HANDLING=1

GPUS_PER_NODE=8
NNODES=4
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
CHECKPOINT_PATH=${CHECKPOINT_PATH:-/data/ckpt/llama-8b}
TOKENIZER=${TOKENIZER:-/data/tokenizers/llama-3.1}

nvidia-smi

DISTRIBUTED_ARGS=(
    --nproc-per-node 8
    --nnodes 4
    --node-rank $SLURM_NODEID
    --master-addr $MASTER_ADDR
    --master-port 6000
)

GPT_MODEL_ARGS=(
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --seq-length 8192
    --max-position-embeddings 8192
    --swiglu
    --normalization RMSNorm
    --position-embedding-type rope
    --disable-bias-linear
    --untie-embeddings-and-output-weights
    --attention-backend flash
)

TRAINING_ARGS=(
    --micro-batch-size 1
    --global-batch-size 512
    --train-iters 50000
    --bf16
    --fp8-format hybrid --fp8-recipe delayed
    --lr 3.0e-4
    --min-lr 3.0e-5
    --lr-decay-style cosine
    --clip-grad 1.0
)

MODEL_PARALLEL_ARGS=(
    --tensor-model-parallel-size 2
    --pipeline-model-parallel-size 2
    --sequence-parallel
    --use-distributed-optimizer
    --overlap-grad-reduce
    --overlap-param-gather
    --tp-comm-overlap
)

DATA_ARGS=(
    --data-path /data/c4/c4_text_document
    --tokenizer-type HuggingFaceTokenizer
    --tokenizer-model $TOKENIZER
    --split 99,1,0
)

srun nsys profile -o llama -t cuda,nvtx \
    torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    ${GPT_MODEL_ARGS[@]} \
    ${TRAINING_ARGS[@]} \
    ${MODEL_PARALLEL_ARGS[@]} \
    ${DATA_ARGS[@]} \
    --save $CHECKPOINT_PATH --load $CHECKPOINT_PATH --save-interval 500 --async-save
