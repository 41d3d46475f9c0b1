pretrained_model_name_or_path = 'internlm/internlm2-chat-7b'
max_length = 2048
pack_to_max_length = True
batch_size = 1
accumulative_counts = 16
dataloader_num_workers = 0
max_epochs = 3
optim_type = AdamW
warmup_ratio = 0.03
save_steps = 500
evaluation_freq = 500
train_dataloader = dict(
    batch_size=batch_size,
    num_workers=dataloader_num_workers,
    collate_fn=dict(type=default_collate_fn))
optim_wrapper = dict(
    type=AmpOptimWrapper,
    accumulative_counts=accumulative_counts,
    loss_scale='dynamic', dtype='float16')
