_base_ = ["../_base_/default_runtime.py"]
model = dict(
    type="RetinaNet",
    backbone=dict(
        type="ResNet", depth=50, norm_cfg=dict(type="BN", requires_grad=True), norm_eval=True
    ),
)
train_dataloader = dict(
    batch_size=64,
    num_workers=2,
    persistent_workers=False,
    sampler=dict(type="DefaultSampler", shuffle=True),
)
val_dataloader = dict(batch_size=1, num_workers=2, persistent_workers=False)
test_dataloader = val_dataloader
train_cfg = dict(type="EpochBasedTrainLoop", max_epochs=12, val_interval=1)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.001, by_epoch=False, begin=0, end=500),
    dict(type="MultiStepLR", begin=0, end=12, by_epoch=True, milestones=[8, 11], gamma=0.1),
]
optim_wrapper = dict(
    type="OptimWrapper", accumulative_counts=1, optimizer=dict(type="SGD", lr=0.01)
)
auto_scale_lr = dict(enable=False, base_batch_size=16)
