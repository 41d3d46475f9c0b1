train_dataloader = dict(batch_size=32, num_workers=4, persistent_workers=True)
val_dataloader = dict(batch_size=1, num_workers=4)
train_cfg = dict(type="IterBasedTrainLoop", max_iters=80000, val_interval=8000)
optim_wrapper = dict(accumulative_counts=1, optimizer=dict(type="AdamW", lr=6e-5))
param_scheduler = [dict(type="PolyLR", eta_min=0.0, power=0.9, begin=0, end=80000, by_epoch=False)]
crop_size = (512, 512)
model = dict(patch_size=4)
